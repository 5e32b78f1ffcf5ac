"""The native HTTP API."""
