"""The parent's side of measuring: one queue for each device, which feeds one worker at a time."""
