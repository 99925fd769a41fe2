"""Nsight Compute: its reports, each as a ``Profile`` with what every ``Rule`` found; and why one launch takes longer."""
