"""The steps of a variant, whether written as one launch, as a list, as a Python function or as a program."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from perfsvc.model import Kind
from perfsvc.suite.authoring import (
    AllReduceStep,
    CallStep,
    FinishStep,
    LaunchStep,
    LibraryStep,
    MemsetStep,
    MetricStep,
    PackageStep,
    Peer,
    PeerCopyStep,
    ProgramStep,
    StepWritten,
    TensorMap,
    Variant,
    parts_of,
    words,
)
from perfsvc.suite.steps.packages import arguments_of, requirements_of
from perfsvc.suite.values import Problem

NCCL = "nccl"
"""What ``all_reduce`` requires of a GPU."""
_LAUNCH_FIELDS = ("entry", "grid", "block", "args", "shared_bytes", "constants", "cluster", "cooperative")


def steps_of(variant: Variant) -> tuple[StepWritten, ...]:
    """Return the steps of a variant; a launch without a source gets the variant's source."""
    if isinstance(variant.run, PackageStep):
        return (_with_source(variant.run, variant),)
    if isinstance(variant.run, LibraryStep | ProgramStep):
        return (variant.run,)
    if variant.run is not None:
        return (CallStep(variant.run, variant.source, timed=True, line=variant.line),)
    if variant.steps:
        return tuple(_with_source(step, variant) for step in variant.steps)
    return (
        LaunchStep(
            entry=variant.entry,
            grid=variant.grid if variant.grid is not None else (),
            block=variant.block if variant.block is not None else (),
            args=variant.args,
            source=variant.source,
            shared_bytes=variant.shared_bytes,
            constants=variant.constants,
            cluster=variant.cluster,
            cooperative=variant.cooperative,
            line=variant.line,
        ),
    )


def _with_source(step: StepWritten, variant: Variant) -> StepWritten:
    """Return a step with the variant's source if it has none itself: a launch, or a package's step given by name."""
    if isinstance(step, LaunchStep) and not step.source:
        return replace(step, source=variant.source)
    if isinstance(step, PackageStep) and isinstance(step.function, str) and not step.source:
        return replace(step, source=" ".join(words(variant.source)))  # a package has one source
    return step


def kind_of(variant: Variant) -> Kind:
    """Return how a variant is timed; a variant that runs a program is of the kind ``program``."""
    return Kind.PROGRAM if isinstance(variant.run, ProgramStep) else Kind(variant.kind)


def compiled_steps(
    steps: tuple[StepWritten, ...],
) -> tuple[LaunchStep | CallStep | PackageStep | LibraryStep, ...]:
    """Return the steps that need a binary: every launch, every library, and each call with a source."""
    return tuple(
        step
        for step in steps
        if isinstance(step, LaunchStep | LibraryStep) or (isinstance(step, CallStep | PackageStep) and step.source)
    )


def requirements(variant: Variant) -> tuple[str, ...]:
    """Return what a variant requires: what its author wrote, and what the packages and libraries of its steps need."""
    implied: dict[str, None] = {}
    for step in steps_of(variant):
        if isinstance(step, PackageStep):
            implied |= dict.fromkeys(requirements_of(step))
        if isinstance(step, LibraryStep) and words(step.libraries):
            implied["cuda"] = None
        if isinstance(step, AllReduceStep):
            implied[NCCL] = None
    return tuple(dict.fromkeys((*words(variant.requires), *implied)))


def buffers_of(step: StepWritten, buffers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names in ``buffers`` that a step uses; a Python function or a library uses all of them."""
    match step:
        case LaunchStep():
            args = [arg.buffer if isinstance(arg, TensorMap | Peer) else arg for arg in parts_of(step.args)]
            named = [arg for arg in args if isinstance(arg, str)] + list(step.constants.values())
        case MemsetStep() | MetricStep():
            named = [step.buffer]
        case FinishStep() | PeerCopyStep() | AllReduceStep():
            named = [step.source, step.target]
        case PackageStep(is_kernel=True):
            named = [arg for arg in arguments_of(step) if isinstance(arg, str)]
        case CallStep() | PackageStep() | LibraryStep():
            return buffers
        case ProgramStep():
            return ()
    return tuple(name for name in named if name in buffers)


def problems_of_form(variant: Variant) -> Iterator[Problem]:
    """Yield the problems of how a variant's steps are written: fields that exclude each other or are missing."""
    if variant.steps and variant.run is not None:
        yield _problem(variant, "has both steps and run", "put call(...) among the steps")
    elif variant.steps or variant.run is not None:
        given = [field for field in _LAUNCH_FIELDS if getattr(variant, field) not in ("", None, 0, (), [], {})]
        if given:
            form = "steps" if variant.steps else "run"
            cure = "move them into a launch(...) among steps"
            yield _problem(variant, f"has {form} beside {', '.join(given)}", cure)
        if not variant.steps and variant.options and not variant.source and not isinstance(variant.run, LibraryStep):
            yield _problem(variant, "has options, and no source to compile", "leave them out, or name a source")
    else:
        missing = [field for field in ("source", "entry", "grid", "block") if getattr(variant, field) in ("", None, ())]
        if missing:
            cure = "give what a launch needs, or steps=[...], or run="
            yield _problem(variant, f"has no {', '.join(missing)}", cure)


def problems_of_sources(variant: Variant, folder: Path) -> Iterator[Problem]:
    """Yield a problem for launches without a source, and for each source file that does not exist."""
    steps = compiled_steps(steps_of(variant))
    lines = {source: step.line for step in reversed(steps) for source in words(step.source) or ("",)}
    for source, line in lines.items():
        if not source:
            yield Problem(f"variant {variant.name!r}: a launch has no source", line, 'give it one: source="kernel.cu"')
        elif not (folder / source).is_file():
            yield Problem(
                f"variant {variant.name!r}: no source file {source!r}",
                line,
                f"put it into {folder}, or correct its name",
            )


def _problem(variant: Variant, what: str, cure: str) -> Problem:
    return Problem(f"variant {variant.name!r} {what}", variant.line, cure)
