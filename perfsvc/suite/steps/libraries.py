"""Variants that call a library: check what the author wrote, and return what a step compiles."""

import re
from collections.abc import Iterator

from perfsvc.suite.authoring import LibraryStep, StepWritten, Variant, words
from perfsvc.suite.values import Problem

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_SUFFIX = ".cu"


def libraries_of(step: StepWritten) -> tuple[str, ...] | None:
    """Return the libraries that a step uses; None if the step calls no library."""
    return words(step.libraries) if isinstance(step, LibraryStep) else None


def problems_of_library(step: LibraryStep, variant: Variant) -> Iterator[Problem]:
    """Yield the problems of a step that calls a library and whose fields have the right types."""
    what = f"variant {variant.name!r}"
    if variant.source and variant.run is step:
        yield Problem(f"{what} has source beside library({step.source!r})", variant.line, "remove source=")
    if not step.source.endswith(_SUFFIX):
        yield Problem(f"{what} calls a library in {step.source!r}", step.line, "name a .cu file")
    if not step.entry.isidentifier():
        yield Problem(
            f"{what}: the entry is {step.entry!r}", step.line, "name what PERFSVC_LIBRARY defines in the source: run"
        )
    for name in words(step.libraries):
        if not _NAME.fullmatch(name) or name.startswith("lib"):
            yield Problem(
                f"{what} uses the library {name!r}",
                step.line,
                'write cublas for libcublas.so: libraries="cublas", or libraries=("cublas", "cublasLt")',
            )
    if variant.kind == "host":
        yield Problem(f"{what} is of the kind host and calls a library", step.line, "remove kind=: perfsvc times it")
