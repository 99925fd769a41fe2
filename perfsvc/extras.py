"""How to install what only some uses of perfsvc need. Imports nothing of ours."""

import re
import shlex
import sys
from importlib import metadata

_REQUIREMENT = re.compile(r"(?P<package>.+?)\s*;.*extra == ['\"](?P<extra>[\w-]+)['\"]")


def install(extra: str) -> str:
    """The command that installs the packages of an extra (``plot``, ``cuda``, …) for the Python that runs now.

    It names the packages and not the extra, so that it works wherever perfsvc itself was installed from.
    """
    try:
        required = metadata.requires("perfsvc") or ()
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        required = ()
    found = map(_REQUIREMENT.match, required)
    wanted = sorted({one["package"] for one in found if one and one["extra"] == extra})
    return shlex.join([sys.executable, "-m", "pip", "install", *(wanted or [f"perfsvc[{extra}]"])])
