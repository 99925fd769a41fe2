"""A night: an unattended check, run, judgement and message."""
