"""A night: unattended, from its lock to its message, each stage for itself."""
