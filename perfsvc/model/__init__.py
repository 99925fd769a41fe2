"""The words of perfsvc as frozen dataclasses (docs/glossary.md). Imports nothing of ours.

Times are seconds, sizes are bytes, clocks are hertz, timestamps are UTC.
"""

import hashlib

from perfsvc.model.bisected import Bisection, Commit, Skipped, Trial
from perfsvc.model.confirmed import Confirmation
from perfsvc.model.facts import Change, Checked, CheckVerdict, Facts, Held, Limiter, Occupancy
from perfsvc.model.findings import (
    Blame,
    Direction,
    EventKind,
    Finding,
    FindingEvent,
    FindingState,
    Moved,
    Settled,
    Shift,
    Suspect,
)
from perfsvc.model.judged import Cause, Judgement, Level, Series, Verdict
from perfsvc.model.measured import (
    BESIDE,
    ENERGY,
    MAX_ERROR,
    TIME,
    UNJUDGED,
    Batch,
    Estimate,
    Measurement,
    Noise,
    Status,
)
from perfsvc.model.messages import Message
from perfsvc.model.places import Conditions, DeviceInfo, Environment, Provenance, Roof, Slowdown
from perfsvc.model.profiled import Explained, Profiled
from perfsvc.model.profiles import Evidence, Explanation, Profile, Reason, ReasonKind, Rule
from perfsvc.model.steps import (
    Arg,
    BufferArg,
    Call,
    Dim3,
    HostFinish,
    HostMetric,
    Launch,
    Memset,
    ReplayRecord,
    ScalarArg,
    Step,
    TensorMapArg,
)
from perfsvc.model.timed import Array, Buffer, Case, Error, Kind, Mode, Role, Tolerance, Unit, Value, Work

__all__ = [
    "BESIDE",
    "ENERGY",
    "MAX_ERROR",
    "TIME",
    "UNJUDGED",
    "Arg",
    "Array",
    "Batch",
    "Bisection",
    "Blame",
    "Buffer",
    "BufferArg",
    "Call",
    "Case",
    "Cause",
    "Change",
    "CheckVerdict",
    "Checked",
    "Commit",
    "Conditions",
    "Confirmation",
    "DeviceInfo",
    "Dim3",
    "Direction",
    "Environment",
    "Error",
    "Estimate",
    "EventKind",
    "Evidence",
    "Explained",
    "Explanation",
    "Facts",
    "Finding",
    "FindingEvent",
    "FindingState",
    "Held",
    "HostFinish",
    "HostMetric",
    "Judgement",
    "Kind",
    "Launch",
    "Level",
    "Limiter",
    "Measurement",
    "Memset",
    "Message",
    "Mode",
    "Moved",
    "Noise",
    "Occupancy",
    "Profile",
    "Profiled",
    "Provenance",
    "Reason",
    "ReasonKind",
    "ReplayRecord",
    "Role",
    "Roof",
    "Rule",
    "ScalarArg",
    "Series",
    "Settled",
    "Shift",
    "Skipped",
    "Slowdown",
    "Status",
    "Step",
    "Suspect",
    "TensorMapArg",
    "Tolerance",
    "Trial",
    "Unit",
    "Value",
    "Verdict",
    "Work",
    "digest",
]


def digest(content: bytes) -> str:
    """The SHA-256 hex digest by which artifacts are known."""
    return hashlib.sha256(content).hexdigest()
