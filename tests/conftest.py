"""What holds for all tests."""

from hypothesis import settings

# An example that is slow on a busy machine is no failure; the time of a whole test has a limit of its own.
settings.register_profile("sessiond", deadline=None)
settings.load_profile("sessiond")
