"""Libraries for the CPU device: host code that calls no CUDA library and has no kernels, compiled as it is."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfsvc.build import libraries, linking, sources
from perfsvc.errors import CompileError, UnsupportedError
from perfsvc.model import Unit
from perfsvc.temporary import temporary_folder

_OPTIONS = ("-x", "c++", "-O2", "-g0", "-w", "-fPIC", "-fvisibility=hidden", "-shared", "-s")
_LINK = () if sys.platform == "darwin" else ("-Wl,--build-id=none", "-Wl,-Bsymbolic")
_KERNEL = re.compile(rb"\b__(?:global|device)__\b|<<<")
_UNKNOWN_CALL = re.compile(r"'(cu(?:da)?[A-Z]\w*)' (?:was not declared|has not been declared)|identifier '(cu\w*)'")


def preimage(unit: Unit, files: Mapping[str, bytes], *, target: str, version: str, options: Sequence[str]) -> bytes:
    """Return everything that decides the binary of a library.

    Args:
        unit: the library.
        files: the texts of its source and of the user's files that it includes, by name.
        target: the target, such as ``cpu-x86_64``.
        version: the name and version of the compiler.
        options: the compiler's own options, such as the language standard.

    Raises ``CompileError`` if the unit reads options from a file.
    """
    settings = [*libraries.settings(unit), *_OPTIONS, *_LINK, *options]
    return sources.preimage(unit, files, target=target, version=version, settings=settings)


def compile_library(unit: Unit, run: Callable[[Sequence[str]], None], options: Sequence[str]) -> bytes:
    """Compile a library, and return the bytes of the shared object.

    Args:
        unit: the library.
        run: runs the compiler with arguments, in the folder of the source.
        options: the compiler's own options.

    Raises:
        CompileError: it does not compile, or lacks an entry.
        UnsupportedError: only a GPU can run it.
    """
    if any(_KERNEL.search(text) for text in sources.local_files(unit).values()):
        raise UnsupportedError(f"unsupported on cpu: the kernels in the library {unit.source.name}")
    if linked := linking.libraries(unit):
        raise UnsupportedError(f"unsupported on cpu: the library {unit.source.name} links {', '.join(linked)}")
    with temporary_folder() as folder:
        output, parameters = folder / "library.so", folder / "parameters"
        parameters.write_text("\n".join([*sources.directives(unit), ""]), encoding="utf-8")
        try:
            run((*_OPTIONS, *options, *_includes(unit, parameters), unit.source.name, *_LINK, "-o", str(output)))
        except CompileError as error:
            if unknown := _UNKNOWN_CALL.search(error.what.replace("‘", "'").replace("’", "'")):
                raise UnsupportedError(f"unsupported on cpu: {unknown[1] or unknown[2]}") from error
            raise
        code = output.read_bytes()
    libraries.require_entries(unit, code)
    return code


def _includes(unit: Unit, parameters: Path) -> list[str]:
    """Return the options for the folders of headers, and for the headers that come before the source."""
    options = sources.read_options(unit.options)
    return [
        f"-I{libraries.HEADERS}",
        *(f"-I{folder}" for folder in options.folders),
        *(word for folder in options.system_folders for word in ("-isystem", folder)),
        *(word for header in (str(parameters), *options.includes) for word in ("-include", header)),
    ]
