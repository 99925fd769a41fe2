"""When nights begin: printed for whoever starts programs on a machine, or started by a daemon of our own."""
