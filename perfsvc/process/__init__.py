"""Other processes: programs that are run, a fork server and its children, and what is exchanged with them."""
