"""The steps of a variant however they were written: one launch in short, a list, or a Python function."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from perfsvc.suite.authoring import (
    CallStep,
    FinishStep,
    LaunchStep,
    MemsetStep,
    MetricStep,
    StepWritten,
    TensorMap,
    Variant,
)
from perfsvc.suite.problem import Problem

_OF_A_LAUNCH = ("entry", "grid", "block", "args", "shared_bytes", "constants")


@lru_cache(maxsize=16)  # each that looks at a variant asks for them
def steps_of(variant: Variant) -> tuple[StepWritten, ...]:
    """The steps, each launch with its source."""
    if variant.run is not None:
        return (CallStep(variant.run, variant.source, timed=True, line=variant.line),)
    if variant.steps:
        return tuple(_with_source(step, variant.source) for step in variant.steps)
    return (_short(variant),)


def _with_source(step: StepWritten, source: str) -> StepWritten:
    if not isinstance(step, LaunchStep) or step.source:
        return step
    return LaunchStep(
        entry=step.entry,
        grid=step.grid,
        block=step.block,
        args=step.args,
        source=source,
        shared_bytes=step.shared_bytes,
        constants=step.constants,
        line=step.line,
    )


def _short(variant: Variant) -> LaunchStep:
    return LaunchStep(
        entry=variant.entry,
        grid=variant.grid if variant.grid is not None else (),
        block=variant.block if variant.block is not None else (),
        args=variant.args,
        source=variant.source,
        shared_bytes=variant.shared_bytes,
        constants=variant.constants,
        line=variant.line,
    )


def problems_of_form(variant: Variant) -> Iterator[Problem]:
    """What is wrong with the way a variant's steps are written."""
    launch = _given(variant, _OF_A_LAUNCH)
    if variant.steps and variant.run is not None:
        yield _of(variant, "has both steps and run", "put call(...) among the steps")
    elif variant.steps or variant.run is not None:
        other = "steps" if variant.steps else "run"
        if launch:
            yield _of(variant, f"has {other} beside {', '.join(launch)}", "move them into a launch(...) among steps")
        if not variant.steps and variant.options and not variant.source:
            yield _of(variant, "has options, and no source to compile", "leave them out, or name a source")
    else:
        missing = [field for field in ("source", "entry", "grid", "block") if getattr(variant, field) in ("", None)]
        if missing:
            yield _of(variant, f"has no {', '.join(missing)}", "give what a launch needs, or steps=[...], or run=")


def _given(variant: Variant, fields: tuple[str, ...]) -> list[str]:
    return [field for field in fields if getattr(variant, field) not in ("", None, 0, (), [], {})]


def _of(variant: Variant, what: str, cure: str) -> Problem:
    return Problem(f"variant {variant.name!r} {what}", variant.line, cure)


def compiled(steps: tuple[StepWritten, ...]) -> tuple[LaunchStep | CallStep, ...]:
    """The steps that need a binary: every launch, and each call that is given one."""
    return tuple(step for step in steps if isinstance(step, LaunchStep) or (isinstance(step, CallStep) and step.source))


def problems_of_source(variant: Variant, folder: Path) -> Iterator[Problem]:
    """A launch without a source, or a source that is not there, once each."""
    for source, line in {step.source: step.line for step in reversed(compiled(steps_of(variant)))}.items():
        if not source:
            yield Problem(f"variant {variant.name!r}: a launch has no source", line, 'give it one: source="kernel.cu"')
        elif not (folder / source).is_file():
            yield Problem(
                f"variant {variant.name!r}: no source file {source!r}",
                line,
                f"put it into {folder}, or correct its name",
            )


def buffers_of(step: StepWritten, every: tuple[str, ...]) -> tuple[str, ...]:
    """The buffers, out of ``every`` one, that a step uses; a Python function is given them all."""
    match step:
        case LaunchStep():
            args = [arg.buffer if isinstance(arg, TensorMap) else arg for arg in step.args]
            named = [arg for arg in args if isinstance(arg, str)] + list(step.constants.values())
        case MemsetStep():
            named = [step.buffer]
        case FinishStep():
            named = [step.source, step.target]
        case MetricStep():
            named = [step.buffer]
        case CallStep():
            return every
    return tuple(name for name in named if name in every)
