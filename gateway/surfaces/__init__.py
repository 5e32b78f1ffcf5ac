"""Dialects of other systems, spoken over HTTP."""
