"""Pictures drawn by Matplotlib."""
