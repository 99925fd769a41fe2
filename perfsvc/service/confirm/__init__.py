"""Confirm before alarm: measure a suspect again, baseline and candidate in A/B pairs."""
