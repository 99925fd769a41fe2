"""The pages to open in the morning."""

from perfsvc.service.dashboard.build import LAST, build

__all__ = ["LAST", "build"]
