"""A bisection of a case of a finding, whose answer is stored with the finding."""

from perfsvc.errors import UsageError
from perfsvc.model import Bisection
from perfsvc.service.bisect.bisect import BisectRequest
from perfsvc.store import Store
from perfsvc.units import some


def require_case(database: str, finding: int, request: BisectRequest) -> None:
    """Check that a finding has the case of a bisection, or reports it as missing, before anything is measured.

    Raises:
        NotMeasuredError: the finding does not exist.
        UsageError: the finding has no series of this case and metric.
    """
    with Store.open(database, create=False) as store:
        moved = store.findings.get(finding).moved
        missing = [row.name for row in store.expectations.of_host(None) if row.finding == finding]
    cases = [step.series.case.id for step in moved if step.series.metric == request.metric]
    cases = list(dict.fromkeys((*cases, *missing)))
    if request.case not in cases:
        raise UsageError(
            f"finding {finding} has no series of {request.case} with the metric {request.metric}",
            cure=f"name one of its cases: {some(cases)}" if cases else f"perfsvc findings show {finding}",
        )


def store_answer(database: str, finding: int, bisection: Bisection) -> None:
    """Store a bisection with a finding; raise ``NotMeasuredError`` if the finding has been removed meanwhile."""
    with Store.open(database, create=False) as store:
        store.findings.put_bisection(finding, bisection)
