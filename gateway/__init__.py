"""Everything that touches the outside world, and the loops."""
