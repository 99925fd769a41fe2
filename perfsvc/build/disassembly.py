"""The instructions of kernels, counted by NVIDIA's disassembler.

It takes half a second to start whatever it is given, so that all kernels of an architecture go to it at once, one after
the other in a file of bare instructions.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfsvc.build import process, tools
from perfsvc.build.cache import Cache
from perfsvc.errors import NoDisassemblerError
from perfsvc.model import digest

INSTRUCTION_BYTES = 16
"""Of every architecture since Volta."""
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")
_EXACT = "a"
"""What only one architecture has is told of its exact name alone (``SM90a``), which has all of the other's, too."""


def find_nvdisasm() -> Path | None:
    """The nvdisasm of PATH, of a CUDA toolkit, or of the ``nvidia-cuda-nvdisasm`` wheel."""
    return tools.find("nvdisasm")


class Disassembler:
    """Counts instructions, each kernel's once and for all.

    Args:
        path: of nvdisasm.
        cache: where counts are looked up and kept, by the digest of the instructions.

    Raises:
        NoDisassemblerError: it cannot be run, or prints nothing that is understood; so does ``opcodes``.
    """

    def __init__(self, path: Path, cache: Cache) -> None:
        self._path = path
        self._cache = cache
        found = _VERSION.search(self._run("--version"))
        if not found:
            raise NoDisassemblerError(f"{path} --version prints no version", cure="reinstall it")
        self.version = f"nvdisasm {found[1]}"
        self._architectures = frozenset(re.findall(r"'(SM\w+)'", self._run("--help")))

    def opcodes(self, architecture: str, kernels: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
        """How many instructions of each opcode (``LDG.E.128``) each kernel has.

        Args:
            architecture: ``sm_90``.
            kernels: their instructions, by digest.
        """
        known = {name: self._cache.get(self._key(architecture, name)) for name in kernels}
        counted = {name: json.loads(text) for name, text in known.items() if text is not None}
        new = {name: kernels[name] for name in kernels if name not in counted}
        if new:
            for name, count in self._count(architecture, new).items():
                self._cache.put(self._key(architecture, name), json.dumps(count).encode())
                counted[name] = count
        return counted

    def _key(self, architecture: str, kernel: str) -> str:
        return digest(f"opcodes {architecture} {self.version} {kernel}".encode())

    def _count(self, architecture: str, kernels: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
        listed = self._listed(architecture, b"".join(kernels.values()))
        return {
            name: dict(Counter(next(listed) for _ in range(len(text) // INSTRUCTION_BYTES)))
            for name, text in kernels.items()
        }

    def _listed(self, architecture: str, instructions: bytes) -> Iterator[str]:
        with tempfile.NamedTemporaryFile(prefix="perfsvc-", suffix=".bin") as file:
            file.write(instructions)
            file.flush()
            printed = self._run("-json", "-ndf", "-b", self._name(architecture), file.name)
        try:
            _, functions = json.loads(printed)
            found = [one["opcode"] for function in functions for one in function["sass-instructions"]]
        except (ValueError, KeyError, TypeError) as error:
            raise NoDisassemblerError(f"{self._path} printed what is no listing", cure="upgrade it") from error
        if len(found) * INSTRUCTION_BYTES != len(instructions):
            raise NoDisassemblerError(f"{self._path} skipped instructions of {architecture}", cure="upgrade it")
        return iter(found)

    def _name(self, architecture: str) -> str:
        plain = architecture.replace("sm_", "SM")
        return f"{plain}{_EXACT}" if f"{plain}{_EXACT}" in self._architectures else plain

    def _run(self, *arguments: str) -> str:
        try:
            finished = process.run([str(self._path), *arguments], folder=Path.cwd())
        except OSError as error:
            raise NoDisassemblerError(f"{self._path} cannot be run: {error.strerror}", cure="reinstall it") from error
        if finished.code:
            raise NoDisassemblerError(f"{self._path} failed: {finished.output.strip()}", cure="upgrade it")
        return finished.output
