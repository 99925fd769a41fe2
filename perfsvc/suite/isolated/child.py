"""The process that runs a benchmark file for perfsvc: it answers requests until perfsvc closes the socket.

A fork server (``perfsvc.process.fork_server``) forks it. Whatever the file does (``sys.exit``, an endless loop, a
thread, a crash, all of the memory) ends this process at most.
"""

import os
import resource
import socket
import sys
from functools import partial

from perfsvc import uses
from perfsvc.errors import SuiteError
from perfsvc.model import codec
from perfsvc.process import frames
from perfsvc.process.shared_memory import Arrays, SharedArrays, map_arrays, share
from perfsvc.suite import arrays
from perfsvc.suite.arrays import Inputs, KnownShapes
from perfsvc.suite.benchfile import BenchFile, load_text
from perfsvc.suite.isolated import reading
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
from perfsvc.suite.resolving import replay_tolerance

MEMORY_SHARE = 0.5
"""Share of the machine's memory that a process may take for itself; the arrays that it shares do not count."""
THREADS = 4
"""How many points' inputs a process makes at once."""


Answer = BenchRead | Specs | Made | ToleranceFound


def prepare() -> None:
    """Build the codecs of the messages."""
    codec.prepare(BenchRequest, BenchReply)


def serve(parent: socket.socket) -> int:
    """Answer requests until the socket closes; return the exit status.

    If a file forks, the copy of this process ends when the file's function returns: a second answer to the same request
    would be taken for the answer to the next request.
    """
    own = os.getpid()
    _limit_memory()
    while (frame := frames.receive(parent)) is not None:
        request = codec.decode(BenchRequest, frame.text)
        _become_like_the_parent(request)
        made: list[SharedArrays] = []
        reply: Answer | Failed
        try:
            with uses.watched():
                reply = _answer(request.body, frame.descriptors, made)
        except SuiteError as error:
            reply = reading.failed(error)
        finally:
            for descriptor in frame.descriptors:
                os.close(descriptor)
        sys.stdout.flush()
        if os.getpid() != own:
            os._exit(0)
        try:
            text = codec.encode(BenchReply(reply))
        except ValueError as error:  # lone surrogates
            text = codec.encode(BenchReply(_not_unicode(request.body, error)))
        frames.send(parent, text, descriptors=[shared.descriptor for shared in made])
        for shared in made:
            shared.close()
    return 0


def _limit_memory() -> None:
    """Let allocations fail with ``MemoryError`` before the system runs out of memory and kills a process."""
    most = int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _become_like_the_parent(request: BenchRequest) -> None:
    """Take over the parent's environment variables, working directory and import path."""
    environment = {frames.from_text(name): frames.from_text(value) for name, value in request.environment.items()}
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
    if request.folder is not None:
        os.chdir(frames.from_text(request.folder))
    sys.path[:] = map(frames.from_text, request.import_path)


def _answer(body: Body, descriptors: tuple[int, ...], made: list[SharedArrays]) -> Answer:
    """Do what a request asks; append the arrays that belong to the reply to ``made``."""
    match body:
        case ReadBench(path):
            return reading.read(path)
        case ResolveCases(path, text, cases, known, all_gpus):
            inputs = Inputs(threads=THREADS, known=KnownShapes(known) if known else None)
            return Specs(reading.resolve_cases(path, text, cases, inputs, all_gpus))
        case MakeArrays(spec, known):
            return _shared(*arrays.make_arrays(spec, KnownShapes(known) if known else None), made)
        case MakeFresh(spec, first):
            (descriptor,) = descriptors
            return _shared(*arrays.make_fresh(spec, partial(map_arrays, descriptor, first.inputs)), made)
        case ReplayArrays(bench, point, seed, variant, inputs_only):
            file = _stored(bench)
            replayed = (
                (arrays.replay_inputs(file, point, seed), {})
                if inputs_only
                else arrays.replay_arrays(file, point, seed, variant)
            )
            return _shared(*replayed, made)
        case ReplayTolerance(bench, point):
            return ToleranceFound(replay_tolerance(_stored(bench), point))


def _stored(bench: StoredBench) -> BenchFile:
    return load_text(bench.text, bench.name, dict(bench.modules))


def _shared(inputs: Arrays, expected: Arrays, made: list[SharedArrays]) -> Made:
    made.append(share(inputs, expected))
    return Made(made[0].layout, uses.used().parts())


def _not_unicode(body: Body, error: ValueError) -> Failed:
    path = body.spec.bench if isinstance(body, MakeArrays | MakeFresh) else getattr(body, "path", "")
    what = f"it uses text that is not Unicode: {str(error)!a}"
    return Failed(what, str(path), 0, "remove lone surrogates from names, values and messages")
