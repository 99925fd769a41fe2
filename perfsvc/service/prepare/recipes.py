"""How the inputs and the references of cases are made, on this host or on another one."""

from functools import partial

from perfsvc import build
from perfsvc.measure.protocol.shared_arrays import NO_ARRAYS, Recipe
from perfsvc.model import Kind
from perfsvc.process.shared_memory import SharedArrays
from perfsvc.suite import CaseSpec, isolated
from perfsvc.suite.isolated.requests import ReplayArrays


def arrays(spec: CaseSpec, limit_s: float) -> Recipe:
    """Return how to make a case's inputs and references; ``limit_s`` is the time limit of a case."""
    if spec.kind is Kind.PROGRAM:
        return NO_ARRAYS
    arrays_limit_s = isolated.ARRAYS_LIMIT * limit_s
    return Recipe(
        spec.arrays,
        partial(_make, spec, arrays_limit_s),
        partial(isolated.make_fresh, spec, limit_s=arrays_limit_s),
        cancel=isolated.stop,
        source=spec,
    )


def _make(spec: CaseSpec, limit_s: float) -> SharedArrays:
    # Not in ``arrays``: the look at the folder would take seconds for thousands of cases.
    return isolated.make_arrays(spec, build.known_shapes(), limit_s)


def replayed(name: str, source: ReplayArrays) -> Recipe:
    """Return how to make the arrays of a stored case; ``name`` is equal for cases that share their arrays."""
    make = partial(isolated.replay_arrays, source.bench, source.point, source.seed, source.variant)
    return Recipe(name, make, cancel=isolated.stop, source=source)
