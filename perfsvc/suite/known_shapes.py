"""The shapes of inputs that an earlier run made, so that resolving a suite need not wait for their elements."""

import contextlib
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfsvc.model import Array, codec, digest

Shapes = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is kept of one point's inputs."""

    arrays: tuple[Array, ...]


class KnownShapes:
    """A folder of shapes by the names of inputs (``CaseSpec.inputs``) and the versions of Python and NumPy.

    Any number of processes may use it at once. What cannot be read or written there is not known.

    Args:
        folder: where it lies; made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> Shapes | None:
        """The shapes of the inputs that have this name; None where they are not known."""
        try:
            entry = codec.decode(_Entry, self._path(name).read_bytes())
        except (OSError, ValueError):
            return None
        return {array.name: array for array in entry.arrays}

    def put(self, name: str, shapes: Shapes) -> None:
        """Keeps what was found."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as entry:
                entry.write(codec.encode(_Entry(tuple(shapes.values()))))
            Path(entry.name).replace(self._path(name))

    def forget(self, name: str) -> None:
        """Knows nothing of that name any more."""
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._folder / digest(f"{name}\n{platform.python_version()}\n{np.__version__}".encode())
