"""The compiler of the fake device: binaries that depend on everything they should, and on nothing else."""

import re
from collections.abc import Mapping

from perfsvc.build import messages, sources
from perfsvc.model import Unit, digest

_ERROR = re.compile(r"^[ \t]*#[ \t]*error\b[ \t]*(.*)$")


class FakeToolchain:
    """A ``Toolchain`` that compiles nothing; a line that starts with ``#error`` is a compile error, as it always is."""

    target = "fake"
    version = "fake 1"
    preprocesses = False

    def preimage(self, unit: Unit, files: Mapping[str, bytes]) -> bytes:
        """Everything that decides the binary."""
        return sources.preimage(unit, files, target=self.target, version=self.version)

    def compile(self, unit: Unit) -> bytes:
        """Bytes made from the preimage; raises ``CompileError`` for an ``#error`` in the source or its includes."""
        files = sources.local_files(unit)
        for name, text in files.items():
            for number, line in enumerate(text.decode(errors="replace").splitlines(), start=1):
                if found := _ERROR.match(line):
                    raise messages.does_not_compile(unit, f"{name}:{number}: error: #error {found[1]}")
        return f"fake {digest(self.preimage(unit, files))}".encode()
