"""Read the static facts of Triton kernels on a machine without a GPU: Triton compiles them for an architecture.

Each kernel is compiled in a process of its own, ``python -m perfsvc.service.check.triton_kernels REQUEST ANSWER``,
because its Python file runs there. PyTorch is not needed. The calls of Triton are those of version 3.6.
"""

import base64
import contextlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from perfsvc import elf
from perfsvc.build import Cache
from perfsvc.build.disassembly import Disassembler, count_classes
from perfsvc.build.facts import PtxasReport, read_ptxas
from perfsvc.build.occupancy import occupancy
from perfsvc.errors import NoDisassemblerError, PerfsvcError
from perfsvc.model import (
    BufferArg,
    Call,
    Case,
    CheckedKernel,
    KernelConfiguration,
    PackageCall,
    ScalarArg,
    StaticFacts,
    Status,
    codec,
    digest,
)
from perfsvc.process import programs
from perfsvc.service.progress import Progress
from perfsvc.suite import CaseSpec
from perfsvc.temporary import temporary_folder

LIMIT_S = 300.0
"""Seconds after which the compilation of a kernel is killed."""
WARP = 32
_ARCHITECTURE = re.compile(r"sm_(\d+)")
_FORMAT = "triton 1"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A kernel to compile.

    Attributes:
        text: the text of the file that defines it.
        args: for each argument, the dtype of the array that it points to, or the number.
        values: the arguments and options by name.
        capability: the compute capability of the GPU, such as 90.
    """

    text: str
    file: str
    function: str
    args: tuple[str | int | float, ...]
    values: tuple[tuple[str, bool | int | float | str | None], ...]
    capability: int


@dataclass(frozen=True, slots=True)
class CompiledAnswer:
    """A compiled kernel, or what is wrong.

    Attributes:
        printed: what the assembler printed about it.
        cubin: its binary in base64.
    """

    what: str = ""
    name: str = ""
    printed: str = ""
    warps: int = 0
    shared_bytes: int = 0
    cubin: str = ""


# --- the parent ------------------------------------------------------------------------------------------------------


def triton_calls(spec: CaseSpec) -> list[tuple[Call, PackageCall]]:
    """Return the steps of a case that launch a Triton kernel."""
    calls = ((step, step.package) for step in spec.steps if isinstance(step, Call))
    return [(step, package) for step, package in calls if package is not None and package.package == "triton"]


def check_triton(
    specs: Sequence[CaseSpec],
    architectures: Sequence[str],
    disassembler: Disassembler | None,
    cache: Cache,
    progress: Progress,
) -> dict[tuple[Case, str], list[CheckedKernel]]:
    """Return the Triton kernels of cases with their facts, by case and architecture.

    A kernel with several configurations is compiled in each of them.

    Args:
        specs: the cases.
        architectures: names such as ``sm_90``.
        disassembler: counts instructions; None if there is none.
        cache: where compiled kernels are looked up and kept.
        progress: receives the number of steps done.
    """
    items = [
        (spec, architecture, name, request)
        for spec in specs
        for architecture in architectures
        for name, request in _requests(spec, architecture)
    ]
    if not items:
        return {}
    version = _version()
    progress.begin("compiling Triton kernels", len(items))

    def answer(item: tuple[CaseSpec, str, str, CompileRequest]) -> CompiledAnswer:
        compiled = _compiled(item[3], version, cache)
        progress.step(f"{item[2]} for {item[1]}")
        return compiled

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="triton") as threads:
        answers = list(threads.map(answer, items))
    found: dict[tuple[Case, str], list[CheckedKernel]] = {}
    for (spec, architecture, name, request), compiled in zip(items, answers, strict=True):
        source = digest(f"{version}\n".encode() + codec.encode(request))
        kernel = _checked(spec.case, architecture, name, source, compiled, disassembler)
        found.setdefault((spec.case, architecture), []).append(kernel)
    return found


def _requests(spec: CaseSpec, architecture: str) -> list[tuple[str, CompileRequest]]:
    """Return each kernel of a case in each configuration, by a name that is unique in the case."""
    capability = _ARCHITECTURE.fullmatch(architecture)
    if capability is None:
        return []
    dtypes = {buffer.array.name: buffer.array.dtype for buffer in spec.buffers}
    found = []
    for step, package in triton_calls(spec):
        text = spec.bench_text if step.source is None else _text(spec.units[step.source].source)
        args = tuple(_argument(arg, dtypes) for arg in package.args)
        file = Path(package.file or spec.bench).name
        for configuration in package.configurations:
            name = _name(step.function, configuration, package.configurations)
            request = CompileRequest(text, file, step.function, args, configuration.values, int(capability[1]))
            found.append((name, request))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""  # the child reports that the kernel is missing


def _argument(arg: object, dtypes: Mapping[str, str]) -> str | int | float:
    if isinstance(arg, BufferArg):
        return dtypes[arg.buffer]
    return arg.value if isinstance(arg, ScalarArg) else 0


def _name(function: str, configuration: KernelConfiguration, all_of: Sequence[KernelConfiguration]) -> str:
    """Return a kernel's name, with the values in which its configurations differ: ``dot BLOCK=64 num_warps=4``."""
    common = set(configuration.values).intersection(*(other.values for other in all_of))
    own = (f"{name}={value}" for name, value in configuration.values if (name, value) not in common)
    return " ".join([function, *own])


def _version() -> str:
    """Return the version of Triton; empty if it is not installed."""
    for package in ("triton", "pytorch-triton"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(package)
    return ""


def _compiled(request: CompileRequest, version: str, cache: Cache) -> CompiledAnswer:
    """Return a compiled kernel from the cache, or compile it in a process of its own."""
    if not version:
        return CompiledAnswer("the package triton is not installed")
    key = digest(f"{_FORMAT}\n{version}\n".encode() + codec.encode(request))
    if (stored := cache.get(key)) is not None:
        with contextlib.suppress(ValueError):
            return codec.decode(CompiledAnswer, stored)
    with temporary_folder() as folder:
        asked, file = folder / "request.json", folder / "answer.json"
        asked.write_bytes(codec.encode(request))
        command = [*programs.python_module("perfsvc.service.check.triton_kernels"), str(asked), str(file)]
        ended = programs.run(command, folder=folder, limit_s=LIMIT_S)
        if not file.exists():
            how = f"took more than {LIMIT_S:g} s" if ended.timed_out else programs.describe_exit(ended.code)
            return CompiledAnswer(f"Triton did not compile it: {how}")
        answer = codec.decode(CompiledAnswer, file.read_bytes())
    if not answer.what:
        cache.put(key, codec.encode(answer))
    return answer


def _checked(  # noqa: PLR0917 - what a checked kernel has
    case: Case, architecture: str, name: str, source: str, compiled: CompiledAnswer, disassembler: Disassembler | None
) -> CheckedKernel:
    """Return a compiled kernel with its facts, or why it has none."""
    if compiled.what:
        return CheckedKernel(case, architecture, name, Status.FAILED, compiled.what, source=source)
    try:
        code = base64.b64decode(compiled.cubin)
        text = elf.kernel_texts(code)[compiled.name]
    except (ValueError, KeyError) as error:
        why = f"the cubin of Triton cannot be read: {error}"
        return CheckedKernel(case, architecture, name, Status.FAILED, why, source=source)
    sass = digest(text)
    opcodes: Mapping[str, int] | None = None
    if disassembler:
        with contextlib.suppress(NoDisassemblerError):
            opcodes = disassembler.opcodes(architecture, {sass: text}).get(sass)
    facts = StaticFacts(
        **asdict(read_ptxas(compiled.printed).get(compiled.name, PtxasReport())),
        instructions=count_classes(opcodes) if opcodes is not None else None,
        sass=sass,
    )
    threads = WARP * compiled.warps
    return CheckedKernel(
        case,
        architecture,
        name,
        facts=facts,
        occupancy=occupancy(architecture, facts, threads, compiled.shared_bytes),
        threads=threads,
        dynamic_shared_bytes=compiled.shared_bytes,
        source=source,
    )


# --- the child -------------------------------------------------------------------------------------------------------


class _Pointer:
    """What Triton needs of an array to compile a kernel: its dtype, and an address that is a multiple of 16."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    @staticmethod
    def data_ptr() -> int:
        """Return an address."""
        return 0


def _compile(request: CompileRequest) -> CompiledAnswer:
    """Compile a kernel for the arguments of its launch, as Triton's own launch does without a cache."""
    from triton import compile as triton_compile
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    from perfsvc import suite

    function = suite.functions(request.text, [request.function], request.file)[request.function]
    if not isinstance(function, JITFunction):
        return CompiledAnswer("its own tuner or heuristics choose its constants: list them in configs")
    target = GPUTarget("cuda", request.capability, WARP)
    backend = make_backend(target)
    bind = create_function_from_signature(function.signature, function.params, backend)
    values = dict(request.values) | {"debug": False, "instrumentation_mode": ""}
    args = [_Pointer(arg) if isinstance(arg, str) else arg for arg in request.args]
    bound, specialization, options = bind(*args, **values)
    options, signature, constants, attributes = function._pack_args(  # noqa: SLF001 - Triton has no public way
        backend, values, bound, specialization, options
    )
    printed = io.StringIO()
    with knobs.compilation.scope(), knobs.nvidia.scope(), contextlib.redirect_stdout(printed):
        knobs.compilation.always_compile = True  # else the assembler does not run, and prints nothing
        knobs.nvidia.dump_ptxas_log = True
        source = ASTSource(function, signature, constants, attributes)
        kernel = triton_compile(source, target=target, options=options.__dict__)
    cubin = base64.b64encode(kernel.asm["cubin"]).decode()
    found = kernel.metadata
    return CompiledAnswer("", found.name, printed.getvalue(), found.num_warps, found.shared, cubin)


def _main(asked: Path, file: Path) -> None:
    """Compile the requested kernel in this process, and write the answer."""
    try:
        answer = _compile(codec.decode(CompileRequest, asked.read_bytes()))
    except PerfsvcError as error:
        answer = CompiledAnswer(error.what)
    except Exception as error:  # noqa: BLE001 - the kernel's own error, or another version of Triton
        text = " ".join(str(error).split())[-300:]
        answer = CompiledAnswer(f"Triton does not compile it: {type(error).__name__}: {text}")
    file.write_bytes(codec.encode(answer))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
