"""NVIDIA's compiler: CUDA sources to cubins, or to PTX where a unit's options ask for that."""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from perfsvc import elf
from perfsvc.build import messages, options, process, ptxas, sources, tools
from perfsvc.errors import CompileError, NoCompilerError
from perfsvc.installation import install_command
from perfsvc.model import Unit

# A cubin must not depend on where its source lies: the first commit of a kernel and its last are built in different
# folders, and only equal code may count as equal. Names in anonymous namespaces carry a hash of the source's full
# path unless the front end is told another. -lineinfo would add the folder's name itself, with no way to map it.
_ANY_FOLDER = "--orig_src_path_name"
_TEMPORARY = re.compile(r"\S*/tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(\S+?)(?=[,;:\s]|$)", re.MULTILINE)
_ARCHITECTURE = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")
PTX = ("-ptx", "--ptx")
"""The options of a unit that is to become PTX."""
_ENTRY_OF_PTX = re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_TEXT = ".text."
_COMMENT = b"//"  # what nvcc begins PTX with
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")


def find_nvcc() -> Path | None:
    """The nvcc of PATH, else of ``CUDA_HOME``, ``CUDA_PATH``, ``/usr/local/cuda`` or the ``nvidia-cuda-nvcc`` wheel."""
    return tools.find("nvcc")


class NvccToolchain:
    """A ``Toolchain`` that makes cubins, and PTX of units with the option ``-ptx``.

    Args:
        target: the architecture, as ``sm_90``.

    Raises:
        NoCompilerError: there is no nvcc, or it cannot be run.
    """

    preprocesses = False

    def __init__(self, target: str) -> None:
        found = find_nvcc()
        if found is None:
            raise NoCompilerError(
                "nvcc was not found on PATH, in CUDA_HOME, in /usr/local/cuda, or as a Python package",
                cure=f"{install_command('nvcc')}, or install NVIDIA's CUDA toolkit",
            )
        self.target = target
        self.path = found
        self.version = f"nvcc {self._version()}"

    def _version(self) -> str:
        printed = self._ask("--version")
        if not (found := _VERSION.search(printed)):
            raise NoCompilerError(f"{self.path} --version prints no version: {printed.strip()}", cure="reinstall it")
        return found[1]

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Every architecture that this nvcc builds for."""
        return tuple(self._ask("--list-gpu-code").split())

    def _ask(self, question: str) -> str:
        answer = self._run([question], folder=Path.cwd())
        if answer.code:
            raise NoCompilerError(f"{self.path} {question} failed: {answer.output.strip()}", cure="reinstall it")
        return answer.output

    def _run(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> process.Finished:
        try:
            return process.run([str(self.path), *arguments], folder=folder, environment=environment)
        except OSError as error:
            raise NoCompilerError(f"{self.path} cannot be run: {error.strerror}", cure="reinstall it") from error

    def preimage(self, unit: Unit, files: Mapping[str, bytes]) -> bytes:
        """Everything that decides the binary."""
        settings = [os.environ.get(variable, "") for variable in _FLAG_VARIABLES]
        return sources.preimage(unit, files, target=self.target, version=self.version, settings=settings)

    def compile(self, unit: Unit) -> bytes:
        """The binary of a unit; raises ``CompileError`` with nvcc's message, or where an entry is missing from it."""
        code, _ = self._compiled(unit)
        return code

    def compile_verbosely(self, unit: Unit) -> tuple[bytes, str]:
        """The binary of a unit, and what its assembler tells of each kernel (``perfsvc.build.ptxas``).

        The binary's bytes are others than those of ``compile``, for they hold the assembler's options; its code is not.
        Raises as ``compile`` does.
        """
        return self._compiled(unit, ptxas.VERBOSE)

    def _compiled(self, unit: Unit, *further: str) -> tuple[bytes, str]:
        if not unit.source.is_file():
            raise CompileError(f"there is no {unit.source}", cure="correct the source's name")
        # nvcc's own temporary files lie there too: killed, it deletes none, and what it started may yet write one.
        with tempfile.TemporaryDirectory(prefix="perfsvc-", ignore_cleanup_errors=True) as folder:
            output = Path(folder, "code.cubin")
            arguments = [*further, *self._arguments(unit, output)]
            finished = self._run(arguments, folder=unit.source.parent, environment={**os.environ, "TMPDIR": folder})
            if finished.timed_out:
                raise messages.still_compiling(unit, process.LIMIT_S)
            if finished.code:
                raise self._failure(unit, finished.output)
            code = output.read_bytes()
        _require_entries(unit, code)
        return code, finished.output

    def _arguments(self, unit: Unit, output: Path) -> list[str]:
        # Run where the source lies, so that messages name it and its headers as their author knows them.
        name = unit.source.name
        chosen = any(option.startswith(_ARCHITECTURE) for option in unit.options)
        architecture = [] if chosen else [f"-arch={self.target}"]
        defines = options.definitions(unit)
        rest = [f"-Xcicc={_ANY_FOLDER},{name}", *unit.options, *defines, "-o", str(output), name]
        phase = [] if any(option in PTX for option in unit.options) else ["--cubin"]
        return [*phase, *architecture, *rest]

    def _failure(self, unit: Unit, output: str) -> CompileError | NoCompilerError:
        if "Failed to preprocess host compiler properties" in output:
            return NoCompilerError(
                f"nvcc ({self.path}) found no C++ compiler of the host, which it needs to read sources",
                cure="install g++, or name a compiler in NVCC_CCBIN",
            )
        if "Unsupported gpu architecture" in output:
            return NoCompilerError(
                f"{self.version} cannot build for {self.target}; it builds for {', '.join(self.targets)}",
                cure="install a CUDA toolkit that knows this GPU and put its nvcc on PATH",
            )
        return messages.does_not_compile(unit, _TEMPORARY.sub(r"\1", output))


def _require_entries(unit: Unit, code: bytes) -> None:
    present = entries(code)
    missing = [entry for entry in unit.entries if entry not in present]
    if missing:
        raise CompileError(
            f"{unit.source.name} has no kernel named {' or '.join(missing)}; it has {', '.join(present) or 'none'}",
            cure='name one of those, or declare the kernel extern "C" __global__ so that it keeps its name',
        )


def entries(code: bytes) -> tuple[str, ...]:
    """The kernels of a cubin or of PTX by symbol name, sorted: a cubin has a section for each.

    Raises ``ValueError`` where the bytes are neither.
    """
    if code.startswith(_COMMENT):
        return tuple(sorted(_ENTRY_OF_PTX.findall(code.decode())))
    names = elf.section_names(code)
    return tuple(sorted(name.removeprefix(_TEXT) for name in names if name.startswith(_TEXT)))
