"""Import the result files of other tools: read them all, store their runs at once, and judge these runs."""
