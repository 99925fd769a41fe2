"""What changes something through the server: runs of other hosts, actions on findings, and signing in."""
