"""The use cases of perfsvc: a file each, or a folder where one takes several."""
