"""A C++ compiler of the host as the toolchain of the CPU device: .cu files compile unchanged with ``cuda_on_cpu.h``.

A unit is preprocessed, paths are removed from its text (``cuda_text``), and only that text is compiled. So equal units
in different folders give equal bytes.
"""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from perfsvc.build import libraries, names, sources
from perfsvc.build.cache import default_folder
from perfsvc.build.cpu import cuda_text, library
from perfsvc.build.libraries import is_library
from perfsvc.build.linking import link_options
from perfsvc.build.toolchain import compile_timeout
from perfsvc.errors import CompileError, NoCompilerError, UnsupportedError
from perfsvc.installation import install_command
from perfsvc.model import Unit
from perfsvc.process import programs
from perfsvc.temporary import PREFIX, temporary_folder

HEADER = Path(__file__).resolve().parent / "cuda_on_cpu.h"

# zig defines NDEBUG by default. As with nvcc, assertions are on unless the unit turns them off.
_LANGUAGE = ("-x", "c++", "-nostdinc++", "-w", "-U_FORTIFY_SOURCE", "-UNDEBUG")
_CODE = (
    "-O2",
    "-g0",  # debug information contains paths
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # otherwise results depend on which additions a compiler fuses
    "-fno-math-errno",
    "-fno-strict-aliasing",  # kernels look at float* as float4* and shared bytes as anything
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fno-sanitize=all",  # zig's default
)
# No libraries: the process that loads the code provides the C library.
_LINK = ("-shared", "-nostdlib", "-s", "-Wl,-Bsymbolic", "-Wl,--build-id=none")
_LINK_DARWIN = ("-shared", "-Wl,-undefined,dynamic_lookup")

_FORMAT = "cpu 1"  # how a unit's text is made
_OLDEST_STANDARD = 17
_CPP98 = 98
_TEMPORARY = re.compile(rf"[^\s\"']*/{re.escape(PREFIX)}\w+/")

_REFUSED = re.compile(r'unsupported on cpu: ([^"\n]*)')
_REDEFINED = re.compile(r"redefinition of ['‘]([^'’\n]+)")
_DEVICE_RUNTIME = "-lcudadevrt"  # launches kernels from kernels, which is refused anyway
_NOT_FOUND = re.compile(r"fatal error: '?([^'\n:]+?)'?(?:: No such file or directory| file not found)")
_GPU_HEADER = re.compile(
    r"^(?:cuda|cub|thrust|cutlass|cute|cooperative_groups|nv|cublas\w*|cudnn\w*|curand\w*|cufft\w*|cusolver\w*|cusparse\w*|nccl)[/.]|^cuda_"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: its command, its version, and the options that it needs in addition."""

    command: tuple[str, ...]
    version: str
    options: tuple[str, ...] = ()


def find_compiler(environment: Mapping[str, str] = os.environ) -> Compiler:
    """Return the first of ``$CXX``, c++, g++, clang++ and the ``ziglang`` package that prints its version.

    Raises ``NoCompilerError`` if there is none, or if ``$CXX`` names a compiler that does not work.
    """
    chosen = shlex.split(environment.get("CXX", ""))
    if chosen:
        if version := _version((*chosen, "--version")):
            return _compiler(tuple(chosen), version)
        raise NoCompilerError(f"$CXX names {chosen[0]}, which prints no version", cure="correct CXX, or unset it")
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name, path=environment.get("PATH"))
        if path and (version := _version((path, "--version"))):
            return _compiler((path,), version)
    if zig := find_zig():
        return zig
    raise NoCompilerError("no C++ compiler was found for the CPU device", cure=install_command("cpu"))


def find_zig() -> Compiler | None:
    """Return the compiler in the ``ziglang`` package, if that is installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    zig = str(Path(spec.origin).parent / "zig")
    version = _version((zig, "version"))
    # By default zig compiles for the processor it runs on, but stored binaries run on other machines too.
    return Compiler((zig, "c++"), f"zig {version}", ("-mcpu=baseline",)) if version else None


def _compiler(command: tuple[str, ...], version: str) -> Compiler:
    # "zig c++" prints clang's version, so zig is recognised by its name in the command, perhaps after ccache.
    zig = any(Path(word).name.startswith("zig") for word in command)
    return Compiler(command, version, ("-mcpu=baseline",) if zig else ())


def _version(command: Sequence[str]) -> str:
    """Run the command with which a compiler prints its version; return the first line, empty if the command fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


class HostToolchain:
    """A ``Toolchain`` for the processor of this machine.

    Args:
        compiler: by default the one that ``find_compiler`` returns.
    """

    def __init__(self, compiler: Compiler | None = None) -> None:
        self._compiler = compiler or find_compiler()

    @property
    def target(self) -> str:
        """The target, such as ``cpu-x86_64`` or ``cpu-aarch64``."""
        return f"cpu-{platform.machine()}"

    @property
    def version(self) -> str:
        """The first line of ``c++ --version``, or ``zig 0.17.0``."""
        return self._compiler.version

    def preimage(self, unit: Unit) -> bytes:
        """Return everything that decides the binary except the files that ``dependencies`` returns."""
        if is_library(unit):
            settings = (*libraries.settings(unit), *library.OPTIONS, *self._library_options(unit))
        else:
            settings = (_FORMAT, *self._code_options(unit), *self._link_options)
        return sources.preimage(unit, target=self.target, version=self.version, settings=settings)

    def dependencies(self, unit: Unit) -> tuple[str, ...]:
        """Return every file that the compiler reads for a unit.

        Raises ``CompileError`` if the compiler cannot preprocess the unit.
        """
        if not is_library(unit):
            return sources.files_of_rule(unit, *self.preprocessed(unit, "-M"))
        with temporary_folder() as folder:
            rule = folder / "files"
            arguments = library.arguments(unit, self._library_options(unit), folder)
            self._run(("-M", *arguments, "-o", str(rule)), unit)
            return sources.files_of_rule(unit, rule.read_text(encoding="utf-8", errors="surrogateescape"), folder)

    def compile(self, unit: Unit) -> bytes:
        """Compile a unit, and return the bytes of a shared object that exports ``unit.entries``.

        Raises ``CompileError`` with the compiler's message, or ``UnsupportedError`` for code that only a GPU can run.
        """
        if is_library(unit):
            return library.compile_library(
                unit, self._texts(unit), lambda arguments: self._run(arguments, unit), self._library_options(unit)
            )
        with temporary_folder() as folder:
            text, output = folder / "unit.cc", folder / "unit.so"
            text.write_text(self._text(unit), encoding="utf-8")
            self._run((*self._code_options(unit), *self._link_options, str(text), "-o", str(output)), unit)
            return output.read_bytes()

    def _texts(self, unit: Unit) -> dict[str, bytes]:
        return sources.texts(unit, self.dependencies(unit))

    def _library_options(self, unit: Unit) -> tuple[str, ...]:
        return (_standard(unit), *self._compiler.options)

    @cached_property
    def _link_options(self) -> tuple[str, ...]:
        return _LINK_DARWIN if sys.platform == "darwin" else _LINK

    def _code_options(self, unit: Unit) -> tuple[str, ...]:
        # On AArch64 GCC calls libgcc for atomics by default, but no library is linked.
        atomics = ("-mno-outline-atomics",) if platform.machine() in {"aarch64", "arm64"} else ()
        return (*_LANGUAGE, _standard(unit), *_CODE, *atomics, *self._compiler.options)

    def _text(self, unit: Unit) -> str:
        """Return the C++ text to compile: the preprocessed source without paths, and code that exports its entries."""
        preprocessed, _ = self.preprocessed(unit, "-E")
        text = cuda_text.without_paths(preprocessed, cuda_text.Folders(unit.source.absolute().parent, HEADER.parent))
        cuda_text.refuse_unsupported(text)
        cuda_text.require_entries(text, unit, self._texts)
        return cuda_text.with_dynamic_shared(text) + cuda_text.registrations(unit.entries)

    def preprocessed(self, unit: Unit, mode: Literal["-E", "-M"]) -> tuple[str, Path]:
        """Return what the C++ preprocessor writes, and the folder of its temporary files, which is gone.

        With ``-E`` that is the unit's text with line markers, with ``-M`` the rule that lists the files of the unit.
        """
        source = unit.source.absolute()
        for file in (source, *unit.others):
            if not file.is_file():
                raise CompileError(f"{file}: there is no such file", cure="correct the variant's source")
        if linked := [word for word in link_options(unit.options).words if word != _DEVICE_RUNTIME]:
            raise UnsupportedError(f"unsupported on cpu: libraries of device code ({' '.join(linked)})")
        # __FILE__ must not contain the source's folder.
        without_folder = f"-fmacro-prefix-map={source.parent}{os.sep}="
        with temporary_folder() as folder:
            output, parameters = folder / "unit.cc", folder / "parameters"
            parameters.write_text(_parameters(unit), encoding="utf-8")
            arguments = (*self._code_options(unit), *_includes(unit, parameters), without_folder)
            self._run((mode, *arguments, *_sources(unit, folder), "-o", str(output)), unit)
            return output.read_text(encoding="utf-8", errors="replace"), folder

    def _run(self, arguments: Sequence[str], unit: Unit) -> None:
        """Run the compiler in the source's folder, so that its messages name files as the author knows them."""
        command = ("env", *_environment(), *self._compiler.command, *arguments)
        finished = programs.run(command, folder=unit.source.absolute().parent)
        if finished.timed_out:
            raise compile_timeout(unit, programs.LIMIT_S)
        if finished.code != 0:
            raise self._refusal(finished.output, unit)

    def _refusal(self, message: str, unit: Unit) -> CompileError | UnsupportedError:
        """Return the error for a compiler's message, without paths of this machine."""
        if refused := _REFUSED.search(message):
            return UnsupportedError(f"unsupported on cpu: {refused[1]}")
        missing = _NOT_FOUND.search(message)
        if missing and _GPU_HEADER.match(missing[1]):
            return UnsupportedError(f"unsupported on cpu: #include <{missing[1]}>")
        if missing and re.fullmatch(r"\w+", missing[1]):
            return UnsupportedError(f"unsupported on cpu: the C++ standard library (#include <{missing[1]}>)")
        shown = _TEMPORARY.sub("", message)
        for folder in (unit.source.absolute().parent, HEADER.parent):
            shown = shown.replace(f"{folder}{os.sep}", "")
        if unit.others and (twice := _REDEFINED.search(shown)):
            return UnsupportedError(f"unsupported on cpu: two sources that both define {twice[1]}")
        return names.failure(unit, shown, self._texts)


def _environment() -> Iterator[str]:
    """Yield environment variables for the compiler: English messages, and zig's own cache in perfsvc's cache folder."""
    yield "LC_ALL=C"
    if "ZIG_GLOBAL_CACHE_DIR" not in os.environ:
        yield f"ZIG_GLOBAL_CACHE_DIR={default_folder().absolute() / 'zig'}"


def _parameters(unit: Unit) -> str:
    """Return the lines with the unit's parameters and assert.h, to include between ``cuda_on_cpu.h`` and the unit.

    With ``-D`` on the command line, parameters called N, T or F would also replace names in ``cuda_on_cpu.h``. assert.h
    comes last, because ``assert`` depends on whether a parameter defines NDEBUG.
    """
    return "\n".join([*sources.directives(unit), "#include <assert.h>", ""])


def _includes(unit: Unit, parameters: Path) -> Iterator[str]:
    """Yield the options for the folders of headers, and for the headers that come before the source."""
    options = sources.read_options(unit.options)
    for folder in (str(HEADER.parent / "include"), *options.folders):
        yield f"-I{folder}"
    for folder in options.system_folders:
        yield from ("-isystem", folder)
    for header in (str(HEADER), str(parameters), *options.includes):
        yield from ("-include", header)


def _sources(unit: Unit, folder: Path) -> Iterator[str]:
    """Yield the file to compile: the source, or a file in ``folder`` that includes all sources of the unit.

    All sources become one text, because they share the worker's state and the dynamic shared memory.
    """
    if not unit.others:
        yield unit.source.name
        return
    together = folder / "sources.cu"
    paths = (unit.source.name, *(os.path.relpath(path, unit.source.parent) for path in unit.others))
    together.write_text("".join(f'#include "{path}"\n' for path in paths), encoding="utf-8")
    yield f"-I{unit.source.absolute().parent}"
    yield str(together)


def _standard(unit: Unit) -> str:
    """Return the option for the language standard: the unit's standard, but at least C++17."""
    digits = re.search(r"(\d\d)$", sources.read_options(unit.options).standard)
    requested = int(digits[1]) if digits else _OLDEST_STANDARD
    return f"-std=gnu++{max(_OLDEST_STANDARD, requested) if requested < _CPP98 else _OLDEST_STANDARD}"
