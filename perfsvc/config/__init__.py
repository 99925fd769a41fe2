"""``perfsvc.toml`` and ``PERFSVC_*`` variables, validated: what is in force, and where each value came from."""

from perfsvc.config.load import Loaded, load
from perfsvc.config.settings import Settings

__all__ = ["Loaded", "Settings", "load"]
