"""What the server stores and sends: runs of other hosts, tokens and entries of the audit log, as frozen rows.

A run goes from host to host as the run first, and then each of its measurements.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from perfsvc.model import (
    CacheState,
    Case,
    DeviceInfo,
    Environment,
    Estimate,
    FullEnvironment,
    Measurement,
    Peak,
    Provenance,
    RunState,
    Work,
)

# --- access ----------------------------------------------------------------------------------------------------------


class Scope(StrEnum):
    """What a token permits."""

    READ = "read"  # read pages and data
    WRITE = "write"  # send runs
    ACT = "act"  # act on findings: accept, ignore, assign, comment


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, without the secret.

    Attributes:
        made_by: the person who made it.
        expires: when it ends; None for never.
        used: when it was last used, accurate to an hour; None for never.
        revoked: when it was revoked; None if it was not.
        revoked_by: the person who revoked it; empty if it was not revoked.
    """

    id: int
    name: str
    scopes: tuple[Scope, ...]
    made: datetime
    made_by: str
    expires: datetime | None = None
    used: datetime | None = None
    revoked: datetime | None = None
    revoked_by: str = ""

    def why_invalid(self, now: datetime) -> str:
        """Return why the token cannot be used at a time; empty if it can."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that a person or a program tried to change through the server.

    Attributes:
        who: the name of the token or of the person; empty if unknown.
        action: what it was, such as ``send a run`` or ``accept``.
        target: on which object, such as ``finding 3``.
        address: the address of the client.
        status: the HTTP status of the answer.
        reason: why the server refused it; empty if it did not.
    """

    at: datetime
    who: str
    action: str
    target: str
    address: str
    status: int
    reason: str = ""


# --- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SentPeak:
    """A measured peak of the arithmetic or the L2 cache of a GPU, in one state of the GPU.

    Attributes:
        device: the UUID of the GPU.
        rate: operations a second; bytes a second for ``l2``.
        kernels: the version of the kernels that measured it.
    """

    device: str
    driver: str
    power_limit_w: float
    name: str
    rate: float
    kernels: int
    measured_at: datetime


@dataclass(frozen=True, slots=True)
class SentRun:
    """A run that has ended, without its measurements.

    Attributes:
        perfsvc_run: the version of the format.
        provenance: where the run comes from.
        devices: the devices of the run.
        environment: the full environment; None if the run recorded none.
        peaks: the measured peaks of the memory of its devices, by UUID.
        gpu_peaks: the other measured peaks of its devices.
        over_budget: the cases that it did not measure because its budget was used up: device, case and cache state.
        measurements: how many measurements follow.
    """

    perfsvc_run: int
    state: RunState
    finished: datetime
    provenance: Provenance
    devices: tuple[DeviceInfo, ...]
    environment: FullEnvironment | None
    peaks: dict[str, Peak]
    gpu_peaks: tuple[SentPeak, ...]
    over_budget: tuple[tuple[str, Case, CacheState], ...]
    measurements: int


@dataclass(frozen=True, slots=True)
class SentMeasurement:
    """A measurement of a run that is sent, without its code: the receiver does not trust the code of other hosts.

    Attributes:
        measurement: the measurement; a metric that is not a finite number is left out.
        environment: the environment of the measurement.
        work: the work of one launch.
        estimate: the median of the samples; None if there are no samples.
        variant_index: the position of the variant in its benchmark, from 0; None if unknown.
        relative_to: the reference variant; empty if there is none.
        measured_at: when it was measured.
    """

    measurement: Measurement
    environment: Environment
    work: Work
    estimate: Estimate | None
    variant_index: int | None
    relative_to: str
    measured_at: datetime
