"""Compare a run with another run, or with the baseline of each series."""
