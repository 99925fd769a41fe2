"""Tables for people, rendered by rich."""
