"""Variants whose steps are captured in a CUDA graph: which steps can be, and what a sample is."""

from collections.abc import Iterator

from perfsvc.model import CacheState, GraphTiming, Kind
from perfsvc.suite.authoring import (
    COLD_STEPS,
    CallStep,
    FinishStep,
    MetricStep,
    PackageStep,
    StepWritten,
    Variant,
    cache_states_of,
)
from perfsvc.suite.steps import kind_of, steps_of
from perfsvc.suite.values import Problem


def graph_of(variant: Variant) -> GraphTiming:
    """Return how the cases of a variant use a CUDA graph; empty if they use none."""
    if variant.graph == COLD_STEPS:
        return "cold steps"
    return "replay" if variant.graph else ""


def problems_of_graph(variant: Variant) -> Iterator[Problem]:
    """Yield why a variant with a graph cannot have one: its kind, its cache states, or each step that is in the way."""
    if not variant.graph or kind_of(variant) is Kind.PROGRAM:  # a program has no graph=, which another check reports
        return
    what = f"variant {variant.name!r} has graph={variant.graph!r}"
    if kind_of(variant) is not Kind.KERNEL:
        cure = "remove kind= or graph=: perfsvc times a graph on the GPU, on a single stream"
        yield Problem(f"{what} and is of the kind {variant.kind}", variant.line, cure)
    if variant.graph == COLD_STEPS and cache_states_of(variant) != (CacheState.COLD,):
        cure = "remove cache=, or write graph=True: cold steps always empty the cache"
        yield Problem(f"{what} and cache={variant.cache!r}", variant.line, cure)
    for step in steps_of(variant):
        if reason := _obstacle(step):
            cure = "remove graph=, or do this part of the work in a kernel"
            yield Problem(f"{what}, and {reason}", step.line, cure)
    if all(isinstance(step, MetricStep) for step in steps_of(variant)):
        yield Problem(f"{what} and no step to capture", variant.line, "add a step, such as launch(...)")


def _obstacle(step: StepWritten) -> str:
    """Return why a step cannot be in a graph; empty if it can, as far as the benchmark file shows."""
    match step:
        case FinishStep():
            return f"finish({step.operation!r}, ...) runs on the host, which a CUDA graph cannot capture"
        case CallStep(timed=False):
            return "a call with timed=False is not part of a sample, so a replay would leave it out"
        case PackageStep(is_kernel=False):
            return (
                f"{step.package}(...) calls a function: {step.package} allocates memory for its results, which a CUDA "
                "graph cannot capture"
            )
        case _:
            return ""
