"""What outlives sessions."""
