"""The words of the glossary as frozen dataclasses. Imports no other part of perfsvc.

Times are in seconds, sizes in bytes, clocks in hertz, timestamps in UTC.
"""

import hashlib

from perfsvc.model.bisections import *
from perfsvc.model.cases import *
from perfsvc.model.devices import *
from perfsvc.model.findings import *
from perfsvc.model.measurements import *
from perfsvc.model.peaks import *
from perfsvc.model.pictures import *
from perfsvc.model.profiles import *
from perfsvc.model.runs import *
from perfsvc.model.static import *
from perfsvc.model.steps import *
from perfsvc.model.verdicts import *


def digest(content: bytes) -> str:
    """Return the SHA-256 hex digest that names an artifact."""
    return hashlib.sha256(content).hexdigest()
