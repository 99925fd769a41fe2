"""Nsight Compute: runs it, reads its reports as ``Profile``s, and explains why one launch takes longer than another."""
