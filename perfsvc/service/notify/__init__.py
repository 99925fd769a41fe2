"""Notify people of what is new in a night."""
