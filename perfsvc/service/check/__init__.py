"""Check the binaries of a suite without a GPU."""
