"""The words of the glossary as frozen dataclasses. Imports no other part of perfsvc.

Times are in seconds, sizes in bytes, clocks in hertz, timestamps in UTC.
"""

import hashlib

from perfsvc.model.bisections import Bisection, Commit, SkippedCommit, Trial
from perfsvc.model.cases import Array, Buffer, CacheState, Case, Error, Kind, Role, Tolerance, Unit, Value, Work
from perfsvc.model.confirmations import Confirmation
from perfsvc.model.devices import Conditions, DeviceInfo, Environment, Peak, Provenance, Slowdown
from perfsvc.model.expectations import Absence, Expected, ExpectedKind
from perfsvc.model.findings import (
    ChangeKind,
    Direction,
    EventKind,
    Finding,
    FindingEvent,
    FindingState,
    FindingUpdates,
    MovedSeries,
    RootCause,
    Suspect,
)
from perfsvc.model.measurements import (
    AUXILIARY,
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
from perfsvc.model.messages import Message, MessageText
from perfsvc.model.profiles import (
    CaseExplanation,
    Evidence,
    Explanation,
    Profile,
    ProfileResult,
    ProfilerRule,
    Reason,
    ReasonKind,
)
from perfsvc.model.runs import NightRow, OverBudget, Pin, RunRow, RunState, StageRow, StageState
from perfsvc.model.static import (
    CheckedKernel,
    CheckVerdict,
    FactChange,
    Limiter,
    Occupancy,
    StaticBaseline,
    StaticFacts,
)
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
from perfsvc.model.verdicts import Cause, Judgement, Level, Series, Verdict

__all__ = [
    "AUXILIARY",
    "ENERGY",
    "MAX_ERROR",
    "TIME",
    "UNJUDGED",
    "Absence",
    "Arg",
    "Array",
    "Batch",
    "Bisection",
    "Buffer",
    "BufferArg",
    "CacheState",
    "Call",
    "Case",
    "CaseExplanation",
    "Cause",
    "ChangeKind",
    "CheckVerdict",
    "CheckedKernel",
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
    "Expected",
    "ExpectedKind",
    "Explanation",
    "FactChange",
    "Finding",
    "FindingEvent",
    "FindingState",
    "FindingUpdates",
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
    "MessageText",
    "MovedSeries",
    "NightRow",
    "Noise",
    "Occupancy",
    "OverBudget",
    "Peak",
    "Pin",
    "Profile",
    "ProfileResult",
    "ProfilerRule",
    "Provenance",
    "Reason",
    "ReasonKind",
    "ReplayRecord",
    "Role",
    "RootCause",
    "RunRow",
    "RunState",
    "ScalarArg",
    "Series",
    "SkippedCommit",
    "Slowdown",
    "StageRow",
    "StageState",
    "StaticBaseline",
    "StaticFacts",
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
    """Return the SHA-256 hex digest that names an artifact."""
    return hashlib.sha256(content).hexdigest()
