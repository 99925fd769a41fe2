"""Run every variant of a suite under NVIDIA's compute-sanitizer and print the first report of each.

    python tests/benchmarks/sanitize.py [--tool memcheck] [--select GLOB] [--points full] [--json FILE] [-- OPTION ...]

Runs each variant's steps once at the smoke point (or at the full points), all in one process, and compares the result
with the reference. There is no blocking kernel and no timing, and each buffer is an allocation of its own without guard
bands, so that memcheck sees the first byte beyond it. For initcheck, outputs and scratch are not written before.
Variants with steps in Python are skipped without ``--python``, because most are other people's kernels. Options after
``--`` go to compute-sanitizer (pip install 'nvidia-cuda-sanitizer-api>=13.4'): ``-- --check-tensor-ops yes``.
"""

import argparse
import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from workbench import SUITE, Claim, alone_on, finish

from perfsvc import build, suite
from perfsvc.build import Binary, Cache
from perfsvc.build.nvcc import find_nvcc
from perfsvc.device import helper_kernels
from perfsvc.device.find import find, open_device
from perfsvc.device.protocol import Device
from perfsvc.errors import CaseError, LaunchError, MissingPackageError, PerfsvcError, SuiteError
from perfsvc.measure.worker.check import error_of, within, wrong
from perfsvc.measure.worker.memory import CaseMemory
from perfsvc.measure.worker.program import Program, load_functions
from perfsvc.model import Buffer, Call, DeviceInfo, Role, Unit, digest
from perfsvc.suite import CaseSpec, Selection
from perfsvc.suite.arrays import make_arrays

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
REPORTED = 9
"""The sanitizer's exit status if it has reported something."""
ARGUMENTS = (
    *("--error-exitcode", str(REPORTED), "--target-processes", "all"),
    *("--destroy-on-device-error", "kernel", "--print-limit", "0", "--show-backtrace", "device"),
)
"""The first two so that no report is missed, the others so that every case is checked even after a bad one."""
PREFIX = "========="
"""The prefix of the sanitizer's lines."""
SAYS = "perfsvc-sanitize:"
"""The prefix of the lines of the process under the sanitizer."""
SETTLE_S = 0.05
"""Seconds to wait after a case: late reports come from another process, and must not be blamed on the next case."""
TAIL_LINES = 20

Prepared = tuple[CaseSpec, list[bytes]]
"""A case and its binaries."""


def main() -> int:
    """Run the sanitizer and print its reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, default=TOOLS[0], help=f"what is checked (default: {TOOLS[0]})")
    parser.add_argument("--suite", type=Path, default=SUITE, help="the folder of benchmarks (default: the built-in)")
    parser.add_argument("--select", action="append", default=[], metavar="GLOB", help="only these cases (repeatable)")
    parser.add_argument("--points", choices=("smoke", "full"), default="smoke", help="which points (default: smoke)")
    parser.add_argument("--python", action="store_true", help="include variants with steps in Python")
    parser.add_argument("--device", default="cuda:0", help="one device (default: cuda:0)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # what runs under the sanitizer
    parser.add_argument("more", nargs="*", metavar="OPTION", help="for compute-sanitizer itself, after --")
    options = parser.parse_args()
    if options.inside:
        return run_all(options.inside, poison=options.tool != "initcheck")
    try:
        return look(options)
    except PerfsvcError as error:
        sys.exit(str(error))


def look(options: argparse.Namespace) -> int:
    """Compile everything and check case after case."""
    (device,) = find([options.device])
    command = [sanitizer(), "--tool", options.tool, *ARGUMENTS, *options.more]
    cases, skipped = prepared(options, device)
    for name, reason in skipped.items():
        print(f"skipped   {name}: {reason}")
    found = []
    with alone_on(device):
        for verdict in checked(cases, device, command, options.tool):
            print(verdict, flush=True)
            found.append(verdict)
    print(f"\n{options.tool} on {device.model}: {len(cases)} cases, {len(skipped)} skipped")
    reported = {verdict.name: verdict.lines for verdict in found if verdict.lines}
    return finish(
        [Claim("cases with a report", len(reported), 0)],
        options.json,
        tool=options.tool,
        device=device.model,
        driver=device.driver,
        clean=[verdict.name for verdict in found if not verdict.lines],
        reported=reported,
        skipped=skipped,
    )


# --- what is checked -------------------------------------------------------------------------------------------------


def prepared(options: argparse.Namespace, device: DeviceInfo) -> tuple[list[Prepared], dict[str, str]]:
    """Return the cases with their binaries, and for each other case why it is skipped.

    Raises:
        PerfsvcError: a benchmark cannot be used, or a source does not compile.
    """
    selection = Selection(tuple(options.select))
    found = suite.discover(options.suite)
    for problem in found.split_problems(selection)[0]:
        raise problem
    specs = {spec.case.id: spec for spec in found.resolve(selection, options.points)[0]}  # only one of its cache states
    reasons = {name: suite.unmet(spec, device) for name, spec in specs.items()}
    if not options.python:
        in_python = {name for name, spec in specs.items() if any(isinstance(step, Call) for step in spec.steps)}
        reasons |= dict.fromkeys(in_python, "has steps in Python (--python)")
    left = [spec for name, spec in specs.items() if not reasons[name]]
    binaries = compiled({unit for spec in left for unit in spec.units}, device)
    return [(spec, [binaries[unit] for unit in spec.units]) for spec in left], {
        name: reason for name, reason in reasons.items() if reason
    }


def compiled(units: Iterable[Unit], device: DeviceInfo) -> dict[Unit, bytes]:
    """Return the binary of each unit."""
    built = build.compile_all(units, build.toolchain_for(device.target), Cache())
    for binary in built.values():
        if not isinstance(binary, Binary):
            raise binary
    return {unit: binary.code for unit, binary in built.items()}


def sanitizer() -> str:
    """Return the path of compute-sanitizer: on PATH, beside nvcc, or in NVIDIA's package.

    Raises:
        MissingPackageError: it is in none of these places.
    """
    nvcc, package = find_nvcc(), find_spec("nvidia")
    folders = [nvcc.parent] if nvcc else []
    for root in package.submodule_search_locations or () if package else ():
        folders += sorted(Path(root).glob("cu*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    if found := shutil.which("compute-sanitizer", path=path):
        return found
    raise MissingPackageError(
        "compute-sanitizer was not found on PATH or beside nvcc",
        cure="pip install 'nvidia-cuda-sanitizer-api>=13.4', or install NVIDIA's CUDA toolkit",
    )


# --- what is reported ------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """The result of a case: the faults that its process reported, and the sanitizer's reports, each as lines."""

    name: str
    faults: list[str] = field(default_factory=list)
    reports: list[list[str]] = field(default_factory=list)
    ended: bool = False

    def hear(self, line: str) -> None:
        """Add a line of the sanitizer. A report begins after one blank, and continues after several."""
        text = line.removeprefix(PREFIX).rstrip()
        if not text or "COMPUTE-SANITIZER" in text or "SUMMARY" in text:
            return
        if not text.startswith("  ") or not self.reports:
            self.reports.append([])
        self.reports[-1].append(text[1:])

    @property
    def lines(self) -> list[str]:
        """All faults and the first report; empty if the case is clean."""
        first = self.reports[0] if self.reports else []
        more = [f"and {len(self.reports) - 1} more"] if len(self.reports) > 1 else []
        return [*self.faults, *first, *more]

    def __str__(self) -> str:
        if not self.lines:
            return f"clean     {self.name}"
        return "\n          ".join([f"REPORTED  {self.name}", *self.lines])


def checked(cases: Sequence[Prepared], device: DeviceInfo, command: Sequence[str], tool: str) -> Iterator[Verdict]:
    """Run the cases under the sanitizer; if a case kills the process, run the others in another process."""
    ours = helper_kernels.unit(device.kind)
    code = compiled([ours], device)[ours] if ours else b""
    left = list(cases)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cases")
        inside = [sys.executable, __file__, "--tool", tool, "--inside", str(path)]
        while left:
            path.write_bytes(pickle.dumps((device.spec, code, left)))
            names = {spec.case.id for spec, _ in left}
            done = 0
            for verdict in sanitized([*command, *inside]):
                done += verdict.name in names
                yield verdict
            if not done:  # it reported why
                return
            left = left[done:]


def sanitized(command: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdict of each case that a process began, and one for reports outside of the cases."""
    heard = Heard()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            yield from heard.line(line)
    yield from heard.end(process.returncode)


class Heard:
    """Reads the output of a process under the sanitizer as verdicts."""

    def __init__(self) -> None:
        self._outside = self._current = Verdict("outside of the cases")
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._explained = False

    def line(self, line: str) -> Iterator[Verdict]:
        """Read a line; yield the verdict of a case that ends with it."""
        word, _, rest = line.removeprefix(SAYS).strip().partition(" ")
        if line.startswith(PREFIX):
            self._current.hear(line)
        elif not line.startswith(SAYS):
            self._tail.append(line.rstrip())
        elif word == "fault":
            self._current.faults.append(rest)
        elif word == "ended":
            self._current.ended = True
        else:  # a case begins, or the cases are over
            yield from self._over()
            self._current = Verdict(rest) if word == "case" else self._outside

    def end(self, code: int) -> Iterator[Verdict]:
        """Read the exit status; yield verdicts of a case that killed the process, and of reports outside of cases."""
        if self._current is not self._outside and not self._current.ended and not self._current.faults:
            self._current.faults += ["its process died", *filter(None, self._tail)]
        yield from self._over()
        if code and not self._explained and not self._outside.lines:
            self._outside.faults += [f"the process ended with {code}", *filter(None, self._tail)]
        if self._outside.lines:
            yield self._outside

    def _over(self) -> Iterator[Verdict]:
        if self._current is not self._outside:
            self._explained |= bool(self._current.lines)
            yield self._current


# --- what runs under the sanitizer -----------------------------------------------------------------------------------


def run_all(path: Path, *, poison: bool) -> int:
    """Run each case once, and report which one runs."""
    spec, code, cases = pickle.loads(path.read_bytes())  # noqa: S301 - written by this script
    with contextlib.closing(open_device(spec, code)) as device:
        for case, binaries in cases:
            say(f"case {case.case.id}")
            try:
                run_once(device, case, binaries, poison=poison)
            except (CaseError, SuiteError) as error:
                say("fault " + " ".join(str(error).split()))
                if isinstance(error, LaunchError) and error.fatal:
                    return 1
            time.sleep(SETTLE_S)
            say("ended")
        say("none")
    return 0


def say(words: str) -> None:
    """Send a message to the process outside."""
    print(f"\n{SAYS} {words}", flush=True)


def run_once(device: Device, case: CaseSpec, binaries: Sequence[bytes], *, poison: bool) -> None:
    """Run a case's steps and compare the result; raises ``ResultError`` if it is wrong."""
    inputs, expected = make_arrays(case)
    record = case.record([digest(code) for code in binaries], "")
    calls = [step for step in case.steps if isinstance(step, Call)]
    functions = load_functions(calls, case.bench_text, binaries)
    with device.measuring(record, 0), Bare(device, case.buffers, poison=poison) as memory:
        program = Program(device, record, binaries, memory, functions)
        device.expect(expected)
        memory.reset(lambda name, address: device.upload(address, inputs[name]))
        program.set_constants()
        program.run()
        for name, reference in expected.items():
            result = memory.read(name)
            if not within(error_of(result, reference), case.tolerance):
                raise wrong(name, result, reference, case.tolerance)


class Bare(CaseMemory):
    """Buffers without guard bands, each an allocation of its own.

    Args:
        device: the device of the buffers.
        buffers: the buffers of the case.
        poison: overwrite the buffers that are not inputs before a check.
    """

    def __init__(self, device: Device, buffers: Sequence[Buffer], *, poison: bool) -> None:
        super().__init__(device, buffers)
        self._poison = poison

    def __enter__(self) -> Self:
        for name in self.names(*Role):
            self._bases[name] = self._device.allocate_untimed(self.nbytes(name))
        return self

    def address(self, name: str) -> int:
        """Return the address of the buffer."""
        return self._bases[name]

    def reset(self, bring: Callable[[str, int], None]) -> None:
        """Upload the inputs."""
        if self._poison:
            super().reset(bring)
            return
        for name in self.names(Role.INPUT, Role.INOUT):
            bring(name, self.address(name))


if __name__ == "__main__":
    sys.exit(main())
