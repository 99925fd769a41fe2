"""Profile stored binaries, and explain why one of two is slower."""
