"""The console: pages of the daemon for a person in a browser."""
