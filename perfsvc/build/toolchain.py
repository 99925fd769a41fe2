"""What every compiler can do, the errors they share, and the compiler of the fake device."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfsvc.build import sources
from perfsvc.errors import CompileError, UnsupportedError
from perfsvc.model import Unit, digest

LINES_SHOWN = 30
"""A template's error may fill thousands of lines; a reader needs the first few."""

_CONTEXT_LINES = 3  # before the first error: which file included this one, which function it is in
_ERROR = re.compile(r"\b(?:error|fatal|undefined)\b", re.IGNORECASE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_ERROR_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*error\b[ \t]*(.*)$")


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled unit.

    Attributes:
        code: the bytes of the binary.
        digest: the SHA-256 digest of the code.
        cached: whether the binary comes from the cache.
        seconds: how long it took to compile the binary or to find it in the cache.
        sources: the texts that the binary was compiled from: the unit's source and the user's files that it includes,
            by their names relative to the source's folder (``../shared/tile.cuh``).
        built_with: what decides the binary besides the user's files: variables of the environment with their values,
            and folders of headers with the digests of those that the compiler read.
        lines: the source lines of the instructions, which hold for this code; encoded by ``build.lines``. Empty if they
            are not known.
    """

    code: bytes
    digest: str
    cached: bool
    seconds: float
    sources: Mapping[str, bytes] = field(default_factory=dict)
    built_with: Mapping[str, bytes] = field(default_factory=dict)
    lines: bytes = b""


class Toolchain(Protocol):
    """A compiler for one target."""

    @property
    def target(self) -> str:
        """The target that the compiler builds for, such as ``sm_90``, ``cpu-x86_64`` or ``fake``."""
        ...

    @property
    def version(self) -> str:
        """The compiler's name and version as runs record them, such as ``nvcc 13.0.88``."""
        ...

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the binary except its files: parameters, options, variables, version.

        Raises ``CompileError`` if the unit reads options from a file.
        """
        ...

    def dependencies(self, unit: Unit) -> tuple[str, ...]:
        """Return every file that the compiler reads for a unit (``sources.files_of_rule``).

        Raises ``CompileError`` if the compiler cannot preprocess the unit.
        """
        ...

    def compile(self, unit: Unit) -> bytes:
        """Compile one unit, and return the bytes of its binary.

        Raises ``CompileError`` with the compiler's message, or ``UnsupportedError`` if the target cannot run the unit.
        """
        ...


def compile_failure(unit: Unit, message: str) -> CompileError:
    """Return the error for a unit that does not compile.

    Args:
        unit: the unit.
        message: what the compiler printed. If it is longer than ``LINES_SHOWN`` lines, the error shows only the lines
            around the first error.
    """
    lines = message.strip().splitlines()
    if len(lines) > LINES_SHOWN:
        first = next((number for number, line in enumerate(lines) if _ERROR.search(line)), 0)
        start = max(0, first - _CONTEXT_LINES)
        shown = lines[start : start + LINES_SHOWN]
        lines = [*shown, f"({len(lines) - len(shown)} more lines left out)"]
    return CompileError("\n".join([f"{unit.source.name} does not compile:", *lines]), cure="correct the source")


def last_lines(message: str) -> str:
    """Return the last ``LINES_SHOWN`` lines of what a build command printed, where it says why it failed."""
    lines = message.strip().splitlines()
    hidden = len(lines) - LINES_SHOWN
    return "\n".join([f"({hidden} lines before)", *lines[hidden:]] if hidden > 0 else lines)


def compile_timeout(unit: Unit, limit_s: float) -> CompileError:
    """Return the error for a unit whose compiler was killed after a time limit."""
    return CompileError(
        f"{unit.source.name}: still compiling after {limit_s:g} s; the compiler was killed",
        cure="unroll less, or split the source",
    )


class FakeToolchain:
    """A ``Toolchain`` that compiles nothing: its binaries are digests of their preimages.

    A line that starts with ``#error`` is a compile error, as in every compiler.
    """

    target = "fake"
    version = "fake 1"

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the binary except its files."""
        return sources.preimage(unit, target=self.target, version=self.version)

    def dependencies(self, unit: Unit) -> tuple[str, ...]:
        """Return the sources of a unit and the headers that they include by plain lines, where they exist."""
        folder, folders = unit.source.parent, sources.include_folders(unit)
        files = [unit.source.name, *(os.path.relpath(source, folder) for source in unit.others)]
        for name in files:  # grows
            for header in _INCLUDE.findall(sources.read_file(folder / name).decode(errors="replace")):
                paths = (os.path.normpath(Path(place, header)) for place in (str(Path(name).parent), *folders))
                if (found := next((path for path in paths if (folder / path).is_file()), None)) and found not in files:
                    files.append(found)
        return tuple(files)

    def compile(self, unit: Unit) -> bytes:
        """Return a digest of the source and its includes instead of code.

        Raises:
            CompileError: one of the files has an ``#error`` line.
            UnsupportedError: the unit is a library, which the fake device cannot call.
        """
        if unit.libraries is not None:
            raise UnsupportedError("unsupported on the fake device: a library")
        files = self.dependencies(unit)
        for name in files:
            text = sources.read_file(unit.source.parent / name).decode(errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if match := _ERROR_DIRECTIVE.match(line):
                    raise compile_failure(unit, f"{name}:{number}: error: #error {match[1]}")
        state = sorted(sources.state_of(unit, files).items())
        return f"fake {digest(self.preimage(unit) + repr(state).encode())}".encode()
