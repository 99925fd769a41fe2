"""What git says, and other revisions of a suite."""
