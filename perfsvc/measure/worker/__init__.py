"""The worker's side of measuring: one process that measures cases on one open device."""
