"""Profiles of stored binaries, and why one of two is slower."""
