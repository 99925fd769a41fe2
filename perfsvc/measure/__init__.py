"""Measuring: a plan of cases, worked off by one worker process on each device."""
