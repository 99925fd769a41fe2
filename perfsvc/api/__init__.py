"""The Python API: a database of results as data frames. ``perfsvc.open`` is its entry."""

from perfsvc.api.stored_results import StoredResults, open_results

__all__ = ["StoredResults", "open_results"]
