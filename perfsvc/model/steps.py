"""The steps of a variant, resolved for one case, and the record that replays them."""

from dataclasses import dataclass
from typing import Literal

from perfsvc.model.cases import Buffer, Case, Kind, Value

Parts = tuple[tuple[str, str], ...]
"""What a case uses, such as a file or a variable, each with its digest or its value."""

Dim3 = tuple[int, int, int]
"""The extent of a grid or a block in x, y and z."""


@dataclass(frozen=True, slots=True)
class BufferArg:
    """A kernel argument: the address of a buffer."""

    buffer: str
    kind: Literal["buffer"] = "buffer"


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A kernel argument passed by value; ``dtype`` is a NumPy dtype name (``int32``, ``float32``)."""

    name: str
    dtype: str
    value: int | float
    kind: Literal["scalar"] = "scalar"


@dataclass(frozen=True, slots=True)
class TensorMapArg:
    """A kernel argument: a ``CUtensorMap`` passed by value, through which the kernel fetches boxes of a buffer.

    Attributes:
        buffer: a row-major matrix.
        element: the element type: a NumPy dtype name, ``bfloat16`` or ``tfloat32``.
        shape: the matrix in elements, rows before columns.
        box: the box in elements, rows before columns.
        swizzle: the span in bytes within which 16-byte pieces of a box change places in shared memory; 0 for none.
    """

    buffer: str
    element: str
    shape: tuple[int, int]
    box: tuple[int, int]
    swizzle: int = 0
    kind: Literal["tensor_map"] = "tensor_map"


@dataclass(frozen=True, slots=True)
class StructArg:
    """A kernel argument: a C++ struct, passed by value or by its address.

    Attributes:
        fields: the offset in bytes and the value of each field; the fields of nested structs and arrays one by one.
        nbytes: the size of the struct.
        pointer: whether the kernel gets the address of a copy in device memory.
    """

    fields: tuple[tuple[int, BufferArg | ScalarArg], ...]
    nbytes: int
    pointer: bool = False
    kind: Literal["struct"] = "struct"


Arg = BufferArg | ScalarArg | TensorMapArg | StructArg


@dataclass(frozen=True, slots=True)
class Memset:
    """Fill a buffer with one byte value."""

    buffer: str
    byte: int = 0
    step: Literal["memset"] = "memset"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch a kernel of one of the case's modules; ``constants`` fills ``__constant__`` symbols from buffers.

    Attributes:
        entry: the kernel as its author names it; ``perfsvc.entries`` finds its symbol in the module.
        cluster: the blocks of a cluster in x, y and z; None if the launch does not choose them.
        cooperative: whether all blocks must run at the same time, so that they can wait for each other.
        programmatic: whether the launch may begin before the launch before it has ended.
        gpu: the position of the GPU that runs the kernel, in a case on several GPUs.
    """

    module: int
    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    constants: tuple[tuple[str, str], ...] = ()
    cluster: Dim3 | None = None
    cooperative: bool = False
    programmatic: bool = False
    gpu: int = 0
    step: Literal["launch"] = "launch"


@dataclass(frozen=True, slots=True)
class PeerCopy:
    """Copy the buffer of one GPU to an equally large buffer of another GPU."""

    source: str
    target: str
    step: Literal["peer_copy"] = "peer_copy"


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Combine equally large buffers, one on each GPU, element by element; each GPU gets the result in its target."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    operation: Literal["sum", "min", "max"] = "sum"
    step: Literal["all_reduce"] = "all_reduce"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Let every GPU wait until all GPUs have done the steps before."""

    step: Literal["barrier"] = "barrier"


@dataclass(frozen=True, slots=True)
class HostFinish:
    """Reduce a buffer to a one-element buffer on the host, in float64 (exact integers for integer dtypes)."""

    operation: Literal["sum", "min", "max"]
    source: str
    target: str
    step: Literal["finish"] = "finish"


@dataclass(frozen=True, slots=True)
class KernelConfiguration:
    """One way to launch a Python kernel: a grid, and values by name, such as the size of a tile or ``num_warps``.

    ``grid`` is empty if the package has no grid, or if a function of the benchmark file computes it for each launch.
    """

    grid: tuple[int, ...] = ()
    values: tuple[tuple[str, bool | int | float | str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PackageCall:
    """How a Python package calls the function, or launches the kernel, of a ``Call`` step.

    Attributes:
        package: the package, whose arrays the function gets.
        args: the arguments in order.
        results: the buffers into which perfsvc copies what the function returns, for the checks.
        configurations: the configurations; if there are several, the fastest is chosen before the case is timed.
        grid: the function of the benchmark file that computes the grid from the values that the kernel's own tuner
            chose; empty if ``configurations`` have the grid.
        block: the threads of a block; empty if the package chooses them.
        shared_bytes: bytes of dynamic shared memory of a block.
        compile: the mode in which ``torch.compile`` compiles the function; empty if it does not.
        file: the name of the Python file that defines the function; empty if the benchmark file does.
    """

    package: Literal["triton", "cupy", "numba", "torch"]
    args: tuple[Arg, ...] = ()
    results: tuple[str, ...] = ()
    configurations: tuple[KernelConfiguration, ...] = (KernelConfiguration(),)
    grid: str = ""
    block: tuple[int, ...] = ()
    shared_bytes: int = 0
    compile: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """Call a Python function of the benchmark file with the case's device arrays and a stream.

    If ``module`` is an index, the function also receives the binary of that module. A step that is not ``timed`` runs
    for the checks only. With ``package``, the package calls the function, and a module is the text of the Python file
    that defines the function.
    """

    function: str
    module: int | None = None
    timed: bool = True
    package: PackageCall | None = None
    step: Literal["call"] = "call"

    @property
    def source(self) -> int | None:
        """The module whose text defines the function; None if the benchmark file defines it."""
        return self.module if self.package else None

    @property
    def bench_functions(self) -> tuple[str, ...]:
        """The names of the functions of the benchmark file that the step needs."""
        own = (self.function,) if self.source is None else ()
        return (*own, self.package.grid) if self.package and self.package.grid else own


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Call a function of a shared object with all buffers of the case and a stream.

    Attributes:
        module: the index of the shared object among the case's modules.
        entry: the function.
        values: the axes and parameters, by name.
    """

    module: int
    entry: str
    values: tuple[tuple[str, Value], ...] = ()
    step: Literal["library"] = "library"


@dataclass(frozen=True, slots=True)
class HostMetric:
    """Reduce a buffer to a metric of the measurement: on the host, in float64, after the last sample."""

    name: str
    operation: Literal["sum", "min", "max", "mean"]
    buffer: str
    step: Literal["metric"] = "metric"


def is_own_program(word: str) -> bool:
    """Return whether the first word of a command names a file (``./bench``), and not a program of the machine."""
    return "/" in word and not word.startswith("/")


@dataclass(frozen=True, slots=True)
class RunProgram:
    """Run an executable once in a folder of its own, and read its times from what it prints or writes.

    Attributes:
        command: the program and its arguments.
        files: the names of the case's modules, in their order: paths relative to the folder in which the program runs.
        parse: the format of the times: a name from ``perfsvc.formats``, or ``regex``.
        pattern: the regular expression if ``parse`` is ``regex``.
        result: the file with the times. If it is empty: the file that ``command`` names and the program writes, or else
            the standard output.
        pick: axes and their values, which choose one of several results.
        metrics: the metrics to store beside the time.
        environment: environment variables to set.
        exit_code: the exit status of success.
        limit_s: seconds after which the program is killed; None for the time limit of a case.
    """

    command: tuple[str, ...]
    files: tuple[str, ...]
    parse: str
    pattern: str = ""
    result: str = ""
    pick: tuple[tuple[str, Value], ...] = ()
    metrics: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    exit_code: int = 0
    limit_s: float | None = None
    step: Literal["program"] = "program"


Step = Memset | Launch | PeerCopy | AllReduce | Barrier | HostFinish | HostMetric | Call | LibraryCall | RunProgram

GraphTiming = Literal["", "replay", "cold steps"]
"""How a case uses a CUDA graph: not at all; a sample is a replay of the graph of its steps; or a sample is the sum of
the steps' times in a graph that empties the cache before each step."""


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """Everything needed to run a case again later, except its modules and the text of its benchmark file.

    ``modules`` and ``bench`` are SHA-256 hex digests. ``Launch.module`` is an index into ``modules``, the compiled
    binaries. The modules of a program are its executable and its other files. ``bench`` is the benchmark file, which
    makes inputs and reference from ``seed`` and holds the functions of ``Call`` steps. ``graph`` is empty unless the
    steps are captured in a CUDA graph. ``gpus`` counts the GPUs.
    """

    case: Case
    kind: Kind
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    modules: tuple[str, ...]
    bench: str
    seed: int
    graph: GraphTiming = ""
    format: int = 1
    gpus: int = 1

    @property
    def calls(self) -> tuple[Call, ...]:
        """The steps that call Python functions."""
        return tuple(step for step in self.steps if isinstance(step, Call))


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package, a CUDA library or Python itself, as a process had loaded it; or a program of the machine.

    ``digest`` is the SHA-256 of the package's list of files with their hashes, or of the program's file; empty if
    it has no such list.
    """

    name: str
    version: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """A kernel that Triton compiled and the case launched.

    Attributes:
        source: the SHA-256 digest of its Python text.
        options: the options of its launch, such as ``("num_warps", "8")``, sorted.
        code: the digest of what its cubin does (``perfsvc.elf.code_digest``).
        cubin: the SHA-256 digest of its cubin; empty if Triton made none.
        metadata: Triton's metadata about the kernel, as a JSON object.
    """

    name: str
    source: str
    options: tuple[tuple[str, str], ...]
    code: str
    cubin: str
    metadata: str


@dataclass(frozen=True, slots=True)
class PythonCode:
    """What a case ran with besides its binary: its inputs, and what its Python functions or its program used.

    Attributes:
        packages: Python itself, the packages that the functions import, and CUDA libraries loaded from outside these
            packages. A case that calls a library has the CUDA libraries that this library uses.
        variables: the environment variables that packages or the functions read, and their values.
        modules: imported modules that belong to no package, and the SHA-256 digests of their texts.
        kernels: the Triton kernels that the case launched.
        files: the author's shared objects that were loaded and the files that the functions read, with SHA-256 digests.
        inputs: the input arrays with checksums of their values.
        inputs_from: the files and variables from which the inputs were made, with digests or values.
    """

    packages: tuple[Package, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    kernels: tuple[TritonKernel, ...] = ()
    files: Parts = ()
    inputs: Parts = ()
    inputs_from: Parts = ()
