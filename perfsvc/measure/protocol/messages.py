"""Messages between the parent and its workers. They travel as JSON in frames (``perfsvc.process.frames``).

The parent sends cases, and a worker sends their measurements.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from perfsvc.errors import PerfsvcError, ResultError, UnsupportedError
from perfsvc.model import CacheState, Case, DeviceInfo, Error, Measurement, ReplayRecord, Status, Tolerance
from perfsvc.process.shared_memory import ArrayLayout

SHORTEST_S = 1e-12
"""The shortest time of a sample: no clock resolves it."""
LONGEST_S = 1e9
"""The longest time of a sample, or of anything else: 30 years."""
LONGEST_NAME = 200
"""The most characters that the name of a metric can have."""

# --- what the parent sends -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a case is sampled.

    Attributes:
        precision: sampling stops when the 95 % confidence interval of the median reaches no further to each side than
            this share of the median.
        samples: sampling also stops after this many samples.
        seconds: sampling also stops after this time, cache eviction and everything else included.
        least: the number of samples from which on ``precision`` may stop sampling.
        least_s: the seconds from which on ``precision`` may stop sampling. An earlier stop would save little compared
            with the other costs of a replica.
        places: at how many places of its arrays a case is measured.
        evict: bytes written before a cold sample, as a multiple of the device's L2 cache.
        energy: also measure the energy of a sample.
        recovery_s: seconds that a case waits in total for a disturbed device to recover.
    """

    precision: float = 0.002
    samples: int = 1000
    seconds: float = 2.0
    least: int = 50
    least_s: float = 0.0
    places: int = 1
    evict: float = 2.0
    energy: bool = False
    recovery_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A result that passed its check: the digest of each output buffer (``Device.digest``), and the error."""

    digests: Mapping[str, str]
    error: Error


@dataclass(frozen=True, slots=True)
class Open:
    """Open the worker's device. The binary of its helper kernels follows as a blob, empty if the device needs none.

    Attributes:
        device: a specification as ``perfsvc.device.find.open_device`` takes it.
        visible: the UUID of the only GPU that CUDA may use, or those of a group, separated by commas; empty for other
            kinds of device.
        programs_on: the device if the worker only runs programs on it; the worker then does not open it.
        environment: the environment variables of perfsvc, in the form that ``frames.as_text`` returns; programs get
            them, and not those of a worker.
    """

    device: str
    visible: str = ""
    programs_on: DeviceInfo | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    message: Literal["open"] = "open"


@dataclass(frozen=True, slots=True)
class CaseJob:
    """Measure one case in one replica.

    The binaries follow as blobs, in the order of ``record.modules``. The message comes with the file descriptor of the
    shared memory that holds the inputs and references, and with a second one if there are fresh arrays.

    Attributes:
        array_name: the same for all cases that share their arrays. If the device still holds arrays of this name, they
            are not uploaded again.
        fresh_arrays: other inputs and their references, for the check after timing. If this is None, the check uses the
            first inputs again. If there are only inputs, the check requires no more than a changed result.
        checked: the result that passed its check in an earlier replica of the run; None if there is none.
        bench: the text of the benchmark file if a step calls its functions.
        python_modules: names and texts of modules; the benchmark file imports them, and not today's files.
        limit_s: seconds after which a program is killed; 0 if the case is no program.
    """

    record: ReplayRecord
    replica: int
    cache: CacheState
    tolerance: Tolerance
    sampling: Sampling
    array_name: str
    arrays: ArrayLayout
    fresh_arrays: ArrayLayout | None = None
    checked: CheckedResult | None = None
    bench: str = ""
    python_modules: tuple[tuple[str, str], ...] = ()
    limit_s: float = 0.0
    message: Literal["job"] = "job"


@dataclass(frozen=True, slots=True)
class Request:
    """Any message that the parent sends."""

    body: Open | CaseJob


# --- what a worker sends ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has opened its device."""

    device: DeviceInfo
    message: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker could not open its device, and ends."""

    what: str
    cure: str
    message: Literal["refused"] = "refused"


@dataclass(frozen=True, slots=True)
class Measured:
    """The worker has finished a job. The files of the measurement follow as blobs.

    Attributes:
        usable: False if the case lost the device context; the worker then ends.
        checked: the result that passed its check, for later replicas.
    """

    measurement: Measurement
    usable: bool
    checked: CheckedResult | None = None
    message: Literal["measured"] = "measured"


@dataclass(frozen=True, slots=True)
class Reply:
    """Any message that a worker sends."""

    body: Ready | Refused | Measured


def problem_of_metric(name: str, taken: Collection[str]) -> str:
    """Return why a metric cannot have this name; empty if it can. ``taken`` has perfsvc's own metrics."""
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        return f"the metric name {name[:LONGEST_NAME]!r} is empty, too long, or has characters that cannot be printed"
    return f"the metric {name!r} is a metric of perfsvc itself" if name in taken else ""


def without_samples(
    case: Case, device: str, replica: int, cache: CacheState, error: PerfsvcError, *, wall_s: float = 0.0
) -> Measurement:
    """Return the measurement of a case that has no times because of ``error``."""
    status = Status.FAILED
    if isinstance(error, ResultError):
        status = Status.WRONG
    elif isinstance(error, UnsupportedError):
        status = Status.SKIPPED
    return Measurement(
        case=case,
        device=device,
        replica=replica,
        cache=cache,
        status=status,
        reason=error.what,
        cure=error.cure,
        wall_s=wall_s,
    )
