"""Findings: what a run raises, what it resolves, and what people do with them."""
