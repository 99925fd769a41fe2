"""Measuring: one case on one device, in a worker process, under the eyes of a pool."""
