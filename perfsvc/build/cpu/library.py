"""Libraries for the CPU device: host code that calls no CUDA library and has no kernels, compiled as it is."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfsvc.build import libraries, linking, sources
from perfsvc.errors import CompileError, UnsupportedError
from perfsvc.model import Unit
from perfsvc.temporary import temporary_folder

OPTIONS = ("-x", "c++", "-O2", "-g0", "-w", "-fPIC", "-fvisibility=hidden", "-shared", "-s")
_LINK = () if sys.platform == "darwin" else ("-Wl,--build-id=none", "-Wl,-Bsymbolic")
_KERNEL = re.compile(rb"\b__(?:global|device)__\b|<<<")
_UNKNOWN_CALL = re.compile(r"'(cu(?:da)?[A-Z]\w*)' (?:was not declared|has not been declared)|identifier '(cu\w*)'")


def compile_library(
    unit: Unit, texts: Mapping[str, bytes], run: Callable[[Sequence[str]], None], options: Sequence[str]
) -> bytes:
    """Compile a library, and return the bytes of the shared object.

    Args:
        unit: the library.
        texts: the texts of the user's files that it consists of, by name.
        run: runs the compiler with arguments, in the folder of the source.
        options: the compiler's own options.

    Raises:
        CompileError: it does not compile, or lacks an entry.
        UnsupportedError: only a GPU can run it.
    """
    if any(_KERNEL.search(text) for text in texts.values()):
        raise UnsupportedError(f"unsupported on cpu: the kernels in the library {unit.source.name}")
    if linked := linking.libraries(unit):
        raise UnsupportedError(f"unsupported on cpu: the library {unit.source.name} links {', '.join(linked)}")
    with temporary_folder() as folder:
        output = folder / "library.so"
        try:
            run((*arguments(unit, options, folder), *_LINK, "-o", str(output)))
        except CompileError as error:
            if unknown := _UNKNOWN_CALL.search(error.what.replace("‘", "'").replace("’", "'")):
                raise UnsupportedError(f"unsupported on cpu: {unknown[1] or unknown[2]}") from error
            raise
        code = output.read_bytes()
    libraries.require_entries(unit, code)
    return code


def arguments(unit: Unit, own: Sequence[str], folder: Path) -> list[str]:
    """Return the compiler's arguments for a library's source, without those for the linker.

    Args:
        unit: the library.
        own: the compiler's own options.
        folder: gets the file with the unit's parameters.
    """
    parameters = folder / "parameters"
    parameters.write_text("\n".join([*sources.directives(unit), ""]), encoding="utf-8")
    options = sources.read_options(unit.options)
    return [
        *OPTIONS,
        *own,
        f"-I{libraries.HEADERS}",
        *(f"-I{folder}" for folder in options.folders),
        *(word for folder in options.system_folders for word in ("-isystem", folder)),
        *(word for header in (str(parameters), *options.includes) for word in ("-include", header)),
        unit.source.name,
    ]
