"""The process that runs a benchmark file for perfsvc: it answers requests until perfsvc closes the socket.

A fork server (``perfsvc.process.fork_server``) forks it. Whatever the file does (``sys.exit``, an endless loop, a
thread, a crash, all of the memory) ends this process at most.
"""

import os
import resource
import socket
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from perfsvc import uses
from perfsvc.errors import SuiteError
from perfsvc.model import Case, codec
from perfsvc.process import frames
from perfsvc.process.shared_memory import Arrays, SharedArrays, map_arrays, share
from perfsvc.suite import arrays
from perfsvc.suite.arrays import Inputs, KnownShapes
from perfsvc.suite.authoring import Variant, cache_states_of
from perfsvc.suite.benchfile import BenchFile, load, load_again, load_text
from perfsvc.suite.case import CaseSpec
from perfsvc.suite.checking import CheckedBenchmark, check
from perfsvc.suite.isolated.requests import (
    BenchRead,
    BenchReply,
    BenchRequest,
    Body,
    Failed,
    ListedCase,
    Made,
    MakeArrays,
    MakeFresh,
    Points,
    ReadBench,
    ReplayArrays,
    ReplayTolerance,
    ResolveCases,
    Specs,
    StoredBench,
    ToleranceFound,
)
from perfsvc.suite.points import Expansion, Point, expansions_of, full_points, smoke_point
from perfsvc.suite.resolving import BenchmarkPoint, case_of, replay_tolerance, resolve, worth_running
from perfsvc.suite.steps import groups, kind_of, requirements
from perfsvc.suite.steps.graphs import graph_of
from perfsvc.suite.values import Problem


def read(path: Path) -> BenchRead:
    """Return the cases of a benchmark file, and its problems; raises ``SuiteError`` if it is no benchmark file."""
    file = load(path)
    checked = check(file)
    return BenchRead(
        path=path,
        text=file.text,
        name=file.name,
        line=file.benchmark.line,
        cases=tuple(_cases(file, checked)),
        problems=tuple(failed(problem.at(path)) for problem in checked.problems),
    )


def failed(error: SuiteError) -> Failed:
    """Return an error as its fields."""
    return Failed(error.what, error.path, error.line, error.cure)


def _gpus(variant: Variant, point: Point) -> tuple[str, ...]:
    """Return how many GPUs a variant on several GPUs needs: ``2 GPUs`` or ``all GPUs``; empty for any other variant."""
    if not groups.uses_several(variant):
        return ()
    return (f"{groups.ALL if variant.gpus == groups.ALL else groups.gpus_of(variant, dict(point))} GPUs",)


def resolve_cases(path: Path, text: str, cases: Sequence[Case], inputs: Inputs, all_gpus: int) -> tuple[CaseSpec, ...]:
    """Return a spec for each case in each of its cache states: everything that building and running it needs.

    Args:
        path: the benchmark file.
        text: the text of the file, from which the cases were listed.
        cases: the cases.
        inputs: makes the inputs of the cases' points, to know their shapes.
        all_gpus: how many GPUs ``gpus="all"`` means.

    Raises:
        SuiteError: one of the author's functions failed at a point, or returned something that cannot be launched.
    """
    file = load_again(path, text)
    expansions = {expansion.name: expansion for expansion in expansions_of(file.benchmark)}
    try:
        shapes = inputs.shapes((file, case.point) for case in cases)
        return tuple(
            spec
            for case in cases
            for spec in resolve(
                expansions[case.variant], BenchmarkPoint(file, case.point, shapes[file, case.point]), all_gpus
            )
        )
    except Problem as problem:
        raise problem.at(path) from problem


def _cases(file: BenchFile, checked: CheckedBenchmark) -> Iterator[ListedCase]:
    """Yield the cases of a file's usable variants at the smoke point and at the full points."""
    if not checked.variants:  # then the points may be unusable, too
        return
    smoke, full = smoke_point(file.benchmark), full_points(file.benchmark)
    for expansion in checked.variants:
        if worth_running(expansion, smoke):
            yield _listed(file, expansion, smoke, "smoke")
        for point in full:
            if worth_running(expansion, point):
                yield _listed(file, expansion, point, "full")


def _listed(file: BenchFile, expansion: Expansion, point: Point, points: Points) -> ListedCase:
    """Return the case of a variant at a point, as ``perfsvc list`` shows it."""
    variant = expansion.variant
    return ListedCase(
        case=case_of(file, expansion, point),
        points=points,
        kind=kind_of(variant),
        caches=cache_states_of(variant),
        requires=(*_gpus(variant, point), *requirements(variant)),
        bench=file.path,
        graph=graph_of(variant),
    )


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
            reply = failed(error)
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
            return read(path)
        case ResolveCases(path, text, cases, known, all_gpus):
            inputs = Inputs(threads=THREADS, known=KnownShapes(known) if known else None)
            return Specs(resolve_cases(path, text, cases, inputs, all_gpus))
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
