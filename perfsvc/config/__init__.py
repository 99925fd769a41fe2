"""``perfsvc.toml`` and ``PERFSVC_*`` variables, validated: the settings in force, and where each value came from."""

from perfsvc.config.load import Loaded, load
from perfsvc.config.settings import ServerSettings, Settings
