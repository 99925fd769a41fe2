"""Measuring: a plan of cases, measured by one worker process on each device."""
