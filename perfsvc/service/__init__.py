"""The use cases of perfsvc, a file each."""
