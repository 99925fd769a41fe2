"""NVIDIA's compiler: CUDA sources to cubins, to PTX if a unit's options ask for it, or to shared objects."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from perfsvc import entries
from perfsvc.build import libraries, linking, names, sources
from perfsvc.build.libraries import is_library
from perfsvc.build.toolchain import compile_timeout
from perfsvc.errors import CompileError, NoCompilerError, UsageError
from perfsvc.installation import install_command
from perfsvc.model import Unit
from perfsvc.process import programs
from perfsvc.temporary import temporary_folder

# A cubin must not depend on the folder of its source: two commits of a kernel are built in different folders, and equal
# code must give equal cubins. Names in anonymous namespaces contain a hash of the source's full path unless the front
# end gets another path. (-lineinfo would add the name of the folder itself, so lines.py keeps only the line table.)
_ANY_FOLDER = "--orig_src_path_name"
_TEMPORARY = re.compile(r"\S*/tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_(\S+?)(?=[,;:\s]|$)", re.MULTILINE)
_ARCHITECTURE = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")
_PTX_OPTIONS = ("-ptx", "--ptx")
_FLAG_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")


def find_nvcc() -> Path | None:
    """Find nvcc on PATH, in ``CUDA_HOME``, ``CUDA_PATH``, ``/usr/local/cuda`` or the ``nvidia-cuda-nvcc`` wheel."""
    return programs.find_cuda_program("nvcc")


def is_ptx(unit: Unit) -> bool:
    """Return whether a unit becomes PTX, from which the driver makes the binary."""
    return not is_library(unit) and any(option in _PTX_OPTIONS for option in unit.options)


class NvccToolchain:
    """A ``Toolchain`` that makes cubins, PTX from units with the option ``-ptx``, and shared objects from libraries.

    Args:
        target: the architecture, such as ``sm_90``.

    Raises:
        NoCompilerError: there is no nvcc, or it cannot be run.
        UsageError: an environment variable with flags for nvcc chooses another architecture.
    """

    def __init__(self, target: str) -> None:
        path = find_nvcc()
        if path is None:
            raise NoCompilerError(
                "nvcc was not found on PATH, in CUDA_HOME, in /usr/local/cuda, or as a Python package",
                cure=f"{install_command('nvcc')}, or install NVIDIA's CUDA toolkit",
            )
        for variable in _FLAG_VARIABLES:
            words = shlex.split(os.environ.get(variable, ""))
            try:
                sources.read_options(words)
            except CompileError as error:
                raise UsageError(f"{variable}: {error.what}", cure="write the options into the variable") from error
            if chosen := _architectures(words):
                raise UsageError(
                    f"{variable} chooses the architecture ({' '.join(chosen)}), and perfsvc compiles for {target}",
                    cure=f"leave {chosen[0]} out of {variable}; perfsvc check takes --arch, and a variant has options=",
                )
        self.target = target
        self.path = path
        printed = self._output_of("--version")
        match = _VERSION.search(printed)
        if match is None:
            raise NoCompilerError(f"{path} --version prints no version: {printed.strip()}", cure="reinstall it")
        flags = (f"{name}={os.environ[name]}" for name in _FLAG_VARIABLES if os.environ.get(name))
        self.version = " ".join([f"nvcc {match[1]}", *flags])

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """Every architecture that this nvcc builds for."""
        return tuple(self._output_of("--list-gpu-code").split())

    def _output_of(self, option: str) -> str:
        """Return what nvcc prints with one option; raise ``NoCompilerError`` if it fails."""
        finished = self._run([option], folder=Path("/"))
        if finished.code:
            raise NoCompilerError(f"{self.path} {option} failed: {finished.output.strip()}", cure="reinstall it")
        return finished.output

    def _run(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> programs.Finished:
        """Run nvcc in a folder; raise ``NoCompilerError`` if it cannot be started."""
        try:
            return programs.run([str(self.path), *arguments], folder=folder, environment=environment)
        except OSError as error:
            raise NoCompilerError(f"{self.path} cannot be run: {error.strerror}", cure="reinstall it") from error

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the binary except the files that ``dependencies`` returns."""
        settings = libraries.settings(unit) if is_library(unit) else []
        settings += [f"{name} {digest}" for name, digest in linking.libraries(unit).items()]
        return sources.preimage(unit, target=self.target, version=self.version, settings=settings)

    def dependencies(self, unit: Unit) -> tuple[str, ...]:
        """Return every file that nvcc reads for a unit; raises ``CompileError`` if it cannot preprocess the unit."""
        with temporary_folder() as folder:
            rule = folder / "files"
            files: dict[str, None] = {}
            for source in (unit.source, *unit.others):
                if not source.is_file():
                    raise CompileError(f"there is no {source}", cure="correct the source's name")
                options = [word for word in linking.link_options(unit.options).others if word not in _PTX_OPTIONS]
                if is_library(unit):
                    options += libraries.nvcc_options(unit, "" if _chosen_architecture(unit) else self.target)
                else:
                    options += self._architecture(unit)
                name = os.path.relpath(source, unit.source.parent)
                self._call(unit, folder, ["-M", *options, *sources.definitions(unit), "-MF", str(rule), name])
                text = rule.read_text(encoding="utf-8", errors="surrogateescape")
                files |= dict.fromkeys(sources.files_of_rule(unit, text))
            return tuple(files)

    def compile(self, unit: Unit) -> bytes:
        """Compile a unit; raises ``CompileError`` with nvcc's message, or if the binary lacks an entry."""
        code, _ = self._compile(unit)
        return code

    def compile_verbosely(self, unit: Unit) -> tuple[bytes, str]:
        """Compile a unit; return the binary and what the assembler prints about each kernel (``-Xptxas=-v``).

        The machine code equals that of ``compile``. The other bytes differ, because a binary contains the assembler's
        options. Raises ``CompileError`` and ``NoCompilerError``.
        """
        return self._compile(unit, "-Xptxas=-v")

    def compile_with_lines(self, unit: Unit) -> bytes:
        """Compile a unit with ``-lineinfo``: a binary of the same code with a line table, which names folders.

        Raises ``CompileError`` and ``NoCompilerError``.
        """
        code, _ = self._compile(unit, "-lineinfo")
        return code

    def _compile(self, unit: Unit, *further: str) -> tuple[bytes, str]:
        """Compile a unit with further options; return the binary and all that nvcc printed."""
        # nvcc's temporary files go into this folder too, and are deleted with it: a killed nvcc deletes none of them.
        with temporary_folder() as folder:
            output = folder / "code.cubin"
            printed = (
                self._link(unit, output, further)
                if linking.is_linked(unit)
                else self._call(unit, folder, [*further, *self._arguments(unit, unit.source, output)])
            )
            code = output.read_bytes()
        if is_library(unit):
            libraries.require_entries(unit, code)
        else:
            self._require_entries(unit, code)
        return code, printed

    def _require_entries(self, unit: Unit, code: bytes) -> None:
        """Raise ``CompileError`` if a name of the unit means no kernel of the binary, or several."""
        for entry in unit.entries:
            found = entries.symbols(code, entry)
            if len(found) != 1:
                present = [entries.demangled(symbol) for symbol in found or entries.kernels(code)]
                raise names.unknown(unit, entry, present or names.declared(self._texts(unit).values()))

    def _texts(self, unit: Unit) -> dict[str, bytes]:
        return sources.texts(unit, self.dependencies(unit))

    def _link(self, unit: Unit, output: Path, further: Sequence[str]) -> str:
        """Compile each source of a unit, and link the parts; return all that nvcc printed."""
        if is_ptx(unit):
            raise CompileError(
                f"{unit.source.name} is linked, and PTX cannot be linked", cure='leave "-ptx" out of the options'
            )
        folder, parts, printed = output.parent, [], ""
        for number, source in enumerate((unit.source, *unit.others)):
            part = folder / f"part{number}.cubin"
            printed += self._call(unit, folder, ["-rdc=true", *further, *self._arguments(unit, source, part)])
            parts.append(str(part))
        words = linking.link_options(unit.options).words
        architecture = self._architecture(unit) or _chosen_architecture(unit)
        arguments = ["-dlink", "--cubin", *architecture, *parts, *words, "-o", str(output)]
        return printed + self._call(unit, folder, arguments)

    def _call(self, unit: Unit, folder: Path, arguments: Sequence[str]) -> str:
        """Run nvcc for a unit, with a folder for its temporary files; return what it printed, or raise an error."""
        finished = self._run(arguments, folder=unit.source.parent, environment={**os.environ, "TMPDIR": str(folder)})
        if finished.timed_out:
            raise compile_timeout(unit, programs.LIMIT_S)
        if finished.code:
            raise self._failure(unit, finished.output)
        return finished.output

    def _arguments(self, unit: Unit, source: Path, output: Path) -> list[str]:
        """Return nvcc's arguments for a source of a unit."""
        # nvcc runs in the folder of the first source, so that its messages name files as the author knows them.
        name = os.path.relpath(source, unit.source.parent)
        if is_library(unit):
            # The front end of the host passes its path on to the front end of the GPU.
            path = f"-Xcudafe={_ANY_FOLDER},{name}"
            options = libraries.nvcc_options(unit, "" if _chosen_architecture(unit) else self.target)
            return [path, *unit.options, *sources.definitions(unit), *options, "-o", str(output), name]
        phase = [] if is_ptx(unit) else ["--cubin"]
        own = [*linking.link_options(unit.options).others, *sources.definitions(unit)]
        text = names.pointers(unit) if source == unit.source else ""
        files = [name]
        if text:  # the pointers come after the source, which is therefore included before them
            last = output.with_name(source.name)  # symbols in anonymous namespaces contain this name
            last.write_text(text, encoding="utf-8")
            files = ["-include", name, str(last)]
        return [
            *phase,
            *self._architecture(unit),
            f"-Xcicc={_ANY_FOLDER},{name}",
            *own,
            "-o",
            str(output),
            *files,
        ]

    def _architecture(self, unit: Unit) -> list[str]:
        """Return the options for the architecture: those of a unit, or else ``-arch``."""
        return [] if _chosen_architecture(unit) else [f"-arch={self.target}"]

    def _failure(self, unit: Unit, output: str) -> CompileError | NoCompilerError:
        """Return the error for nvcc's output: a problem of the installation, or of the unit."""
        if "Failed to preprocess host compiler properties" in output:
            chosen = os.environ.get("NVCC_CCBIN", "")
            named = f"no C++ compiler in {chosen}, which NVCC_CCBIN names" if chosen else "no C++ compiler of the host"
            reason = output.strip().partition("\n")[0]
            return NoCompilerError(
                f"nvcc ({self.path}) found {named}, and needs one to read sources: {reason}",
                cure="correct NVCC_CCBIN, or unset it" if chosen else "install g++, or name a compiler in NVCC_CCBIN",
            )
        if "Unsupported gpu architecture" in output:
            return NoCompilerError(
                f"{self.version} cannot build for {self.target}; it builds for {', '.join(self.targets)}",
                cure="install a CUDA toolkit that knows this GPU and put its nvcc on PATH",
            )
        return names.failure(unit, _TEMPORARY.sub(r"\1", output), self._texts)


def _chosen_architecture(unit: Unit) -> list[str]:
    """Return the words of a unit's own options that choose the architecture."""
    return _architectures(unit.options)


def _architectures(options: Sequence[str]) -> list[str]:
    """Return the words that choose the architecture."""
    words: list[str] = []
    for word, following in pairwise([*options, ""]):
        if word.startswith(_ARCHITECTURE):
            words += [word] if "=" in word else [word, following]
    return words
