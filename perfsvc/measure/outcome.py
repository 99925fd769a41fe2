"""A case's error as the measurement that takes its place."""

from perfsvc.errors import CaseError, PerfsvcError, ResultError, UnsupportedError
from perfsvc.model import CacheState, Case, Measurement, Status


def status_of(error: PerfsvcError) -> Status:
    """Wrong for a result, skipped for what the device cannot run, failed for everything else."""
    if isinstance(error, ResultError):
        return Status.WRONG
    if isinstance(error, UnsupportedError):
        return Status.SKIPPED
    return Status.FAILED


def without_samples(
    case: Case, device: str, replica: int, cache: CacheState, error: CaseError | PerfsvcError, *, wall_s: float = 0.0
) -> Measurement:
    """The measurement of a case that has no times, because of ``error``."""
    return Measurement(
        case=case,
        device=device,
        replica=replica,
        cache=cache,
        status=status_of(error),
        reason=error.what,
        cure=error.cure,
        wall_s=wall_s,
    )
