"""What a run measures: the order of cases, the time budget, and A/B pairs."""
