"""The change detector: which series changed their level, on which run, and how (docs/explanation/histories.md)."""
