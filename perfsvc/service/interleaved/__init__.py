"""Compare two revisions of a suite without a database: build both, and measure in A/B pairs what differs."""
