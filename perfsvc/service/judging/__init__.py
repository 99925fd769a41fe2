"""What the store holds of two levels, as verdicts, causes, suspects and findings."""
