"""What the server adds to the store: tokens, runs from other hosts, and the audit log."""
