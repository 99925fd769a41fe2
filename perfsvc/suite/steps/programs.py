"""Steps that run a program or call a library: check what the author wrote, and resolve it at a point."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfsvc.formats import FORMATS
from perfsvc.formats.pattern import REGEX, problem_of_pattern
from perfsvc.model import AUXILIARY, TIME, ProgramFile, RunProgram, Step, Value, is_own_program
from perfsvc.suite.authoring import LibraryStep, ProgramStep, Regex, StepWritten, Variant, words
from perfsvc.suite.values import Problem, filled_in, nearest

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


FOLDERS = frozenset({"asv"})
"""Formats whose results are a folder, which a program cannot print."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def problems_of_program(step: ProgramStep, variant: Variant) -> Iterator[Problem]:
    """Yield the problems of a variant that runs a program and whose fields have the right types."""
    what = f"variant {variant.name!r}"
    unused = {"kind": variant.kind != "kernel", "cache": variant.cache != "cold", "source": bool(variant.source)}
    unused |= {"scratch": bool(variant.scratch), "reference": variant.reference is not None}
    unused |= {"graph": bool(variant.graph)}
    for field in (field for field, given in unused.items() if given):
        yield Problem(f"{what} runs a program and has {field}", variant.line, f"remove {field}=: a program ignores it")
    yield from _problems_of_command(step, what)
    yield from _problems_of_parse(step, what)
    for name in words(step.metrics):
        if name in {TIME, *AUXILIARY}:
            yield Problem(f"{what}: the metric {name!r} is a metric of perfsvc itself", step.line, "remove it")
    for name in step.env:
        if not _ENVIRONMENT_NAME.fullmatch(name):
            yield Problem(f"{what} sets the environment variable {name!r}", step.line, "use letters, digits and _")
        if name == VISIBLE:
            yield Problem(f"{what} sets {VISIBLE}", step.line, "remove it: perfsvc names the GPU that it measures")


def _problems_of_command(step: ProgramStep, what: str) -> Iterator[Problem]:
    """Yield the problem of a command that cannot be split into words, is empty, or runs nothing that can be stored."""
    try:
        command = command_words(step)
    except ValueError as error:
        yield Problem(f"{what} has the command {step.command!r}: {error}", step.line, "close every quote")
        return
    if not command or not command[0]:
        yield Problem(f"{what} has an empty command", step.line, 'name a program: program("./bench --json out.json")')
    elif not is_own_program(command[0]) and not words(step.files):
        yield Problem(
            f"{what} runs {command[0]!r}, a program of this machine, and names no file of its own",
            step.line,
            f'list what {command[0]} runs, such as files="bench.py": perfsvc stores these files, to know when the code '
            "has changed and to measure it again"
            + ("" if "/" in command[0] else f"; if {command[0]} lies beside the bench.py, write ./{command[0]}"),
        )


def _problems_of_parse(step: ProgramStep, what: str) -> Iterator[Problem]:
    """Yield the problem of an unknown format, or of an unusable regular expression."""
    known = [name for name in FORMATS if name not in FOLDERS]
    if isinstance(step.parse, Regex):
        if problem := problem_of_pattern(step.parse.pattern, words(step.metrics)):
            yield Problem(f"{what} has an unusable regular expression: {problem}", step.line, "correct regex(...)")
    elif step.parse not in known:
        yield Problem(
            f"{what} has parse={step.parse!r}, which is no format",
            step.line,
            nearest(step.parse, [*known, "regex(...)"]),
        )


def command_words(step: ProgramStep) -> tuple[str, ...]:
    """Return the words of a command as the author wrote them; raise ``ValueError`` if a quote is not closed."""
    return tuple(shlex.split(step.command)) if isinstance(step.command, str) else words(step.command)


def resolve_program(step: ProgramStep, variant: Variant, values: Mapping[str, Value]) -> RunProgram:
    """Return the program of a variant at a point, with the values of axes and parameters in its texts.

    Raises:
        Problem: a text asks for an unknown name, or a file has an absolute path or is named twice.
    """

    def filled(text: str) -> str:
        return filled_in(text, values, variant.name, step.line)

    command = tuple(map(filled, command_words(step)))
    own = [command[0]] if is_own_program(command[0]) else []
    files = [os.path.normpath(name) for name in (*own, *map(filled, words(step.files)))]
    for position, name in enumerate(files):
        if Path(name).is_absolute() or name in {".", ".."} or name in files[:position]:
            raise Problem(
                f"variant {variant.name!r} needs the file {name!r}",
                step.line,
                "name each file once, by its path relative to bench.py",
            )
    pick = {name: filled(value) if isinstance(value, str) else value for name, value in step.pick.items()}
    return RunProgram(
        command=command,
        files=tuple(files),
        parse=REGEX if isinstance(step.parse, Regex) else step.parse,
        pattern=step.parse.pattern if isinstance(step.parse, Regex) else "",
        result=filled(step.result),
        pick=tuple(sorted(pick.items())),
        metrics=words(step.metrics),
        environment=tuple(sorted((name, filled(value)) for name, value in step.env.items())),
        exit_code=step.exit_code,
        limit_s=None if step.limit_s is None else float(step.limit_s),
    )


def files_of(variant: Variant, steps: tuple[Step, ...], folder: Path) -> tuple[ProgramFile, ...]:
    """Return the files of a variant's program, in the order of ``RunProgram.files``; none if it runs no program."""
    if not isinstance(variant.run, ProgramStep):
        return ()
    return tuple(
        ProgramFile(
            Path(os.path.normpath(folder / name)),
            folder,
            variant.run.build,
            executable=position == 0 and is_own_program(step.command[0]),
        )
        for step in steps
        if isinstance(step, RunProgram)
        for position, name in enumerate(step.files)
    )
