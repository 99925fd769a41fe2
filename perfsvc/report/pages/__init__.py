"""The pages of the dashboard: what they show, and how it is written."""
