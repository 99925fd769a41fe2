"""Run benchmark files in processes of their own, so that nothing in a file can end, stop or write for perfsvc itself.

A process runs one benchmark file. It is kept for the next request of the same file, because what the file imports may
take seconds to import. It is killed when it exceeds its time, and at the end of perfsvc.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from perfsvc import units
from perfsvc.errors import SuiteError
from perfsvc.model import Case, Tolerance, codec
from perfsvc.process import frames, shared_memory
from perfsvc.process.child import Death
from perfsvc.process.frames import FrameError
from perfsvc.process.shared_memory import SharedArrays, take_inputs
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.isolated.processes import Processes
from perfsvc.suite.isolated.requests import (
    BenchRead,
    BenchReply,
    BenchRequest,
    Body,
    Failed,
    Made,
    MakeArrays,
    MakeFresh,
    ReadBench,
    ReplayArrays,
    ReplayTolerance,
    ResolveCases,
    Specs,
    StoredBench,
    ToleranceFound,
)
from perfsvc.suite.points import Point
from perfsvc.suite.steps.groups import LEAST_GPUS

READ_LIMIT_S = 300.0
"""Seconds that reading or resolving a benchmark file may take, the imports of its packages included."""
ARRAYS_LIMIT = 10
"""The inputs and the reference of a case may take this many times as long as the case itself (``--limit``)."""
DEFAULT_LIMIT_S = 600.0
"""Seconds that inputs and references may take where no run gives another limit."""
SHOWN_BYTES = 200
"""How many bytes of an unreadable reply are reported."""
ATTEMPTS = 3
"""How often a request is sent if the fork server dies: a file that kills the server must not fail other files. From the
second attempt on, one request is sent at a time."""

T = TypeVar("T", BenchRead, Specs, Made, ToleranceFound)


def read(path: Path) -> BenchRead:
    """Return the cases of a benchmark file, and its problems; raises ``SuiteError`` if it is no benchmark file."""
    return _ask(ReadBench(path), BenchRead, str(path), READ_LIMIT_S)[0]


def resolve_cases(
    path: Path, text: str, cases: Sequence[Case], known_shapes: Path | None = None, all_gpus: int = LEAST_GPUS
) -> tuple[CaseSpec, ...]:
    """Return a spec for each case in each of its cache states; raise ``SuiteError`` if a case cannot be resolved."""
    request = ResolveCases(path, text, tuple(cases), known_shapes, all_gpus)
    specs, _ = _ask(request, Specs, str(path), DEFAULT_LIMIT_S)
    return specs.specs


def make_arrays(spec: CaseSpec, known_shapes: Path | None = None, limit_s: float = DEFAULT_LIMIT_S) -> SharedArrays:
    """Return the inputs and the expected results of a case; see ``arrays.make_arrays``."""
    return _made(MakeArrays(spec, known_shapes), str(spec.bench), limit_s)


def make_fresh(spec: CaseSpec, first: Callable[[], SharedArrays], *, limit_s: float = DEFAULT_LIMIT_S) -> SharedArrays:
    """Return the fresh inputs of a case, and their expected results; see ``arrays.make_fresh``."""
    arrays = first()
    return _made(MakeFresh(spec, arrays.layout), str(spec.bench), limit_s, [arrays.descriptor])


def replay_arrays(
    bench: StoredBench, point: Point, seed: int, variant: str = "", limit_s: float = DEFAULT_LIMIT_S
) -> SharedArrays:
    """Return the inputs and the expected results of a variant, as a stored benchmark makes them at a point."""
    return _made(ReplayArrays(bench, point, seed, variant), f"{bench.name}/bench.py", limit_s)


def replay_inputs(bench: StoredBench, point: Point, seed: int) -> dict[str, NDArray[Any]]:
    """Return the inputs that a stored benchmark makes at a point, without the expected results."""
    return take_inputs(
        _made(ReplayArrays(bench, point, seed, inputs_only=True), f"{bench.name}/bench.py", DEFAULT_LIMIT_S)
    )


def replay_tolerance(bench: StoredBench, point: Point) -> Tolerance:
    """Return a stored benchmark's tolerance at a point; raises ``SuiteError`` if it is unusable."""
    found, _ = _ask(ReplayTolerance(bench, point), ToleranceFound, f"{bench.name}/bench.py", READ_LIMIT_S)
    return found.tolerance


def error(failed: Failed) -> SuiteError:
    """Return the problem that a process reported."""
    return SuiteError(failed.what, path=failed.path, line=failed.line, cure=failed.cure)


def start() -> None:
    """Start the server that forks a process for each benchmark file; it imports modules while perfsvc prepares.

    Call this function in the main thread: Linux kills a server that is still importing when its starting thread ends.
    """
    _processes.start()


def stop() -> None:
    """Kill the processes that run now: what they were asked fails."""
    _processes.stop()


# --- ask a process ----------------------------------------------------------------------------------------------------

_processes = Processes()
_alone = threading.Lock()


def _made(body: Body, path: str, limit_s: float, descriptors: Sequence[int] = ()) -> SharedArrays:
    """Have the process of a benchmark file make arrays, and return them; the caller closes them."""
    made, (descriptor,) = _ask(body, Made, path, limit_s, descriptors)
    try:
        return shared_memory.with_checksums(shared_memory.received(descriptor, made.layout), made.made_from)
    except (OSError, ValueError) as error:
        os.close(descriptor)
        raise _unreadable(path, str(error)) from error


def _ask(
    body: Body, answer: type[T], path: str, limit_s: float, descriptors: Sequence[int] = ()
) -> tuple[T, tuple[int, ...]]:
    """Send a request to a process of a benchmark file; return its answer, and the descriptors that came with it.

    If the server that forks these processes dies, perhaps because of another request, the request is sent again, with
    ``ATTEMPTS`` attempts at most. From the second attempt on, only one request runs at a time.

    Args:
        body: the request.
        answer: the type of the answer.
        path: the benchmark file.
        limit_s: seconds that the answer may take.
        descriptors: descriptors that go with the request.

    Raises:
        SuiteError: the file has a problem, exceeded its time, or ended its process.
    """
    try:
        text = codec.encode(_request(body))
    except ValueError as odd:  # lone surrogates
        what = "its path has bytes that are not UTF-8 text"
        raise SuiteError(what, path=path, cure="rename the file or its folders") from odd
    with contextlib.suppress(_ServerDiedError):
        return _ask_once(text, answer, path, limit_s, descriptors)
    for _ in range(ATTEMPTS - 2):
        with _alone, contextlib.suppress(_ServerDiedError):
            return _ask_once(text, answer, path, limit_s, descriptors)
    with _alone:
        return _ask_once(text, answer, path, limit_s, descriptors)


class _ServerDiedError(SuiteError):
    """The fork server died, perhaps because of another benchmark file."""


def _ask_once(
    text: bytes, answer: type[T], path: str, limit_s: float, descriptors: Sequence[int]
) -> tuple[T, tuple[int, ...]]:
    """Send the text of a request to a process of the file once; return the answer and the descriptors with it."""
    with _processes.process(path) as child:
        try:
            frame = child.send(text, descriptors=descriptors, limit_s=limit_s) or child.receive(
                limit_s, message_limit_s=limit_s
            )
        except TimeoutError:
            raise SuiteError(
                f"it took longer than {units.duration_text(limit_s)}",
                path=path,
                cure="make its inputs and references faster: reading the file runs them once, at the smoke point, "
                f"and may take {units.duration_text(READ_LIMIT_S)}; those of a case may take ten times --limit",
            ) from None
        except FrameError as broken:
            raise _unreadable(path, str(broken)) from broken
        if isinstance(frame, Death):
            raise _ended(path, frame)
        _show(path, child.take_output())
    try:
        reply = codec.decode(BenchReply, frame.text).body
    except ValueError:
        reply = None
    if isinstance(reply, answer) and len(frame.descriptors) == isinstance(reply, Made):
        return reply, frame.descriptors
    for descriptor in frame.descriptors:
        os.close(descriptor)
    if isinstance(reply, Failed):
        raise error(reply)
    raise _unreadable(path, repr(frame.text[:SHOWN_BYTES]))


def _request(body: Body) -> BenchRequest:
    """Return a request with the working directory, the environment and the import path of this process."""
    try:
        folder = frames.as_text(str(Path.cwd()))
    except FileNotFoundError:
        folder = None
    environment = {frames.as_text(name): frames.as_text(value) for name, value in os.environ.items()}
    return BenchRequest(body, folder, environment, tuple(frames.as_text(entry) for entry in sys.path))


def _ended(path: str, death: Death) -> SuiteError:
    """Return the problem of a file whose process died."""
    output = f": {death.output}" if death.output else ""
    kind = _ServerDiedError if death.with_server else SuiteError
    return kind(
        f"it ended the process that ran it ({death.how}){output}",
        path=path,
        cure="let it raise an exception, or return; see dmesg if the system killed it for lack of memory",
    )


def _unreadable(path: str, what: str) -> SuiteError:
    """Return the error for an unreadable message from the process that runs a benchmark file."""
    return SuiteError(
        f"the process that ran it sent a message that cannot be read: {what}",
        path=path,
        cure="see whether it writes to files that it did not open",
    )


def _show(path: str, output: str) -> None:
    """Show what a benchmark file printed, on standard error, because standard output may be read by a program."""
    for line in output.splitlines():
        sys.stderr.write(f"{path}: {line}\n")
