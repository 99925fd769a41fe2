"""Measuring a suspect again, baseline and candidate in turn."""
