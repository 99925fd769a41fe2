"""Nsight Compute: its reports as a ``Profile`` each, with what a ``Rule`` of it found; why one launch takes longer."""
