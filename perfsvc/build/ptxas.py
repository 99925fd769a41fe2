"""What NVIDIA's assembler tells of each kernel with ``-v``: the only place where spills are told."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

VERBOSE = "-Xptxas=-v"
"""nvcc's option for it."""

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")


@dataclass(frozen=True, slots=True)
class Told:
    """What the assembler tells of one kernel; the words are those of ``perfsvc.model.Facts``."""

    registers: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0
    barriers: int = 0


def read(said: str) -> dict[str, Told]:
    """Each kernel by its symbol.

    Functions that kernels call and that were not inlined have spills of their own, and nothing tells who calls them:
    they count for every kernel of the binary.

    Args:
        said: all that nvcc printed with ``VERBOSE``.
    """
    kernels: dict[str, Told] = {}
    functions: dict[str, Told] = {}
    kernel = function = ""
    for line in said.splitlines():
        if found := _ENTRY.search(line):
            kernel = found[1]
            kernels[kernel] = Told()
        elif found := _FUNCTION.search(line):
            function = found[1]
        elif found := _STACK.search(line):
            stack, stored, loaded = map(int, found.groups())
            told = Told(stack_bytes=stack, spill_store_bytes=stored, spill_load_bytes=loaded)
            (kernels if function in kernels else functions)[function] = told
        elif _REGISTERS.search(line) and kernel in kernels:
            kernels[kernel] = _with_usage(kernels[kernel], line)
    return {name: _with_functions(told, functions) for name, told in kernels.items()}


def _with_usage(told: Told, line: str) -> Told:
    def number(pattern: re.Pattern[str]) -> int:
        found = pattern.search(line)
        return int(found[1]) if found else 0

    return replace(
        told,
        registers=number(_REGISTERS),
        barriers=number(_BARRIERS),
        shared_bytes=number(_SHARED),
        stack_bytes=max(told.stack_bytes, number(_CUMULATIVE)),
    )


def _with_functions(told: Told, functions: Mapping[str, Told]) -> Told:
    called = functions.values()
    return replace(
        told,
        spill_store_bytes=told.spill_store_bytes + sum(one.spill_store_bytes for one in called),
        spill_load_bytes=told.spill_load_bytes + sum(one.spill_load_bytes for one in called),
    )
