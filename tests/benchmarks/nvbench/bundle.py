"""Cases as files that a process without perfsvc can run: binaries, steps, and the beginning of each input."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from perfsvc.device.memory import PAGE_BYTES, Arena, arena_bytes
from perfsvc.measure.plan.order import Task
from perfsvc.measure.worker.memory import GUARD_BYTES
from perfsvc.model import Arg, Buffer, BufferArg, HostFinish, Launch, Memset, Role, ScalarArg, Step
from perfsvc.process.shared_memory import take_inputs

BEGINNING_BYTES = 4 << 20
"""The bytes of an input that are written; on the device they are repeated until the buffer is full."""


def write(folder: Path, tasks: Iterable[Task], memory_bytes: int) -> None:
    """Write ``cases.json`` and the files that it names into a folder.

    Every array has the place that perfsvc gives it on a device with as much memory, because places change times.
    """
    cases: list[dict[str, Any]] = []
    for number, task in enumerate(tasks):
        inputs = take_inputs(task.arrays.make())
        cases.append(
            {
                "name": task.record.case.id,
                "modules": [_module(folder, *pair) for pair in zip(task.record.modules, task.modules, strict=True)],
                "buffers": _buffers(folder, f"{number}", task.record.buffers, inputs),
                "steps": _steps(task),
            }
        )
    reach = max(buffer["place"] + buffer["bytes"] for case in cases for buffer in case["buffers"]) + GUARD_BYTES
    bundle = {"arena_bytes": max(arena_bytes(memory_bytes), reach), "cases": cases}
    (folder / "cases.json").write_text(json.dumps(bundle, indent=1))


def _module(folder: Path, name: str, code: bytes) -> str:
    (folder / name).write_bytes(code)
    return name


def _buffers(folder: Path, case: str, buffers: Sequence[Buffer], inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    arena = Arena(PAGE_BYTES, 1 << 62)  # address 0 would be invalid
    places = [arena.allocate(_bytes(buffer) + 2 * GUARD_BYTES) for buffer in buffers]
    return [
        _buffer(folder, case, buffer, inputs) | {"place": (place or 0) - PAGE_BYTES + GUARD_BYTES}
        for buffer, place in zip(buffers, places, strict=True)
    ]


def _buffer(folder: Path, case: str, buffer: Buffer, inputs: Mapping[str, Any]) -> dict[str, Any]:
    name, beginning = buffer.array.name, ""
    if buffer.role in {Role.INPUT, Role.INOUT}:
        beginning = f"{case}-{name}"
        flat = np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)
        flat[:BEGINNING_BYTES].tofile(folder / beginning)
    return {"name": name, "bytes": _bytes(buffer), "beginning": beginning}


def _bytes(buffer: Buffer) -> int:
    return prod(buffer.array.shape) * np.dtype(buffer.array.dtype).itemsize


def _steps(task: Task) -> list[dict[str, Any]]:
    """Return the steps of the device: neither tool times the steps of the host afterwards."""
    sizes = {buffer.array.name: _bytes(buffer) for buffer in task.record.buffers}
    return [_step(step, sizes) for step in task.record.steps if not isinstance(step, HostFinish)]


def _step(step: Step, sizes: Mapping[str, int]) -> dict[str, Any]:
    match step:
        case Memset(buffer, byte):
            return {"step": "memset", "buffer": buffer, "byte": byte, "bytes": sizes[buffer]}
        case Launch(constants=()):
            return {
                "step": "launch",
                "module": step.module,
                "entry": step.entry,
                "grid": step.grid,
                "block": step.block,
                "shared_bytes": step.shared_bytes,
                "args": [_argument(argument) for argument in step.args],
            }
    raise ValueError(f"NVBench's side of the comparison cannot run {step}")


def _argument(argument: Arg) -> dict[str, Any]:
    if isinstance(argument, BufferArg):
        return {"kind": "buffer", "buffer": argument.buffer}
    if isinstance(argument, ScalarArg):
        return {"kind": "scalar", "dtype": argument.dtype, "value": argument.value}
    raise ValueError(f"NVBench's side of the comparison cannot pass {argument}")
