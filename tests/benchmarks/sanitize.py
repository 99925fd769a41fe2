"""Every variant of a suite under NVIDIA's compute-sanitizer: is it clean, or what is reported of it first?

    python tests/benchmarks/sanitize.py [--tool memcheck] [--select GLOB] [--points full] [--json FILE] [-- OPTION ...]

Runs each variant's steps once at the smoke point (or at the full points), all in one process, and compares the result
with the reference. There is no gate and no timing, and each buffer is an allocation of its own that nothing surrounds,
so that memcheck sees the first byte beyond it. For initcheck nothing is written to outputs and scratch before. Variants
with steps in Python are left out unless ``--python`` asks for them: most of them are other people's kernels. Options
after ``--`` go to compute-sanitizer (pip install 'nvidia-cuda-sanitizer-api>=13.4'): ``-- --check-tensor-ops yes``.
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
from perfsvc.measure.worker.program import Program
from perfsvc.model import Buffer, Call, DeviceInfo, Role, Unit, digest
from perfsvc.suite import CaseSpec, Selection

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
REPORTED = 9
"""The sanitizer's exit status where it has reported something."""
ARGUMENTS = (
    *("--error-exitcode", str(REPORTED), "--target-processes", "all"),
    *("--destroy-on-device-error", "kernel", "--print-limit", "0", "--show-backtrace", "device"),
)
"""The first two lest a report go unnoticed, the others so that every case is checked however bad the one before is."""
PREFIX = "========="
"""What the sanitizer's lines begin with."""
SAYS = "perfsvc-sanitize:"
"""What the process under the sanitizer begins its own lines with."""
SETTLE_S = 0.05
"""How long it waits after a case: reports come from another process, and the next case is not to be blamed for them."""
TAIL_LINES = 20

Prepared = tuple[CaseSpec, list[bytes]]
"""A case and its binaries."""


def main() -> int:
    """Runs the sanitizer and tells what it reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, default=TOOLS[0], help=f"what is checked (default: {TOOLS[0]})")
    parser.add_argument("--suite", type=Path, default=SUITE, help="the folder of benchmarks (default: the built-in)")
    parser.add_argument("--select", action="append", default=[], metavar="GLOB", help="these cases alone (repeatable)")
    parser.add_argument("--points", choices=("smoke", "full"), default="smoke", help="at which (default: smoke)")
    parser.add_argument("--python", action="store_true", help="variants with steps in Python as well")
    parser.add_argument("--device", default="cuda:0", help="one device (default: cuda:0)")
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
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
    """Has everything compiled, and checks case after case."""
    (device,) = find([options.device])
    command = [sanitizer(), "--tool", options.tool, *ARGUMENTS, *options.more]
    cases, over_budget = prepared(options, device)
    for name, reason in over_budget.items():
        print(f"left out  {name}: {reason}")
    found = []
    with alone_on(device):
        for verdict in checked(cases, device, command, options.tool):
            print(verdict, flush=True)
            found.append(verdict)
    print(f"\n{options.tool} on {device.model}: {len(cases)} cases, {len(over_budget)} left out")
    reported = {verdict.name: verdict.lines for verdict in found if verdict.lines}
    return finish(
        [Claim("cases of which something was reported", len(reported), 0)],
        options.json,
        tool=options.tool,
        device=device.model,
        driver=device.driver,
        clean=[verdict.name for verdict in found if not verdict.lines],
        reported=reported,
        over_budget=over_budget,
    )


# --- what is checked -------------------------------------------------------------------------------------------------


def prepared(options: argparse.Namespace, device: DeviceInfo) -> tuple[list[Prepared], dict[str, str]]:
    """The cases with their binaries, and why the others are left out.

    Raises:
        PerfsvcError: a benchmark cannot be used, or a source does not compile.
    """
    selection = Selection(tuple(options.select))
    found = suite.discover(options.suite)
    for problem in found.split_problems(selection)[0]:
        raise problem
    specs = {spec.case.id: spec for spec in found.resolve(selection, options.points)}  # one of its cache states
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
    """The binary of each unit."""
    built = build.compile_all(units, build.toolchain_for(device.target), Cache())
    for one in built.values():
        if not isinstance(one, Binary):
            raise one
    return {unit: one.code for unit, one in built.items()}


def sanitizer() -> str:
    """Where compute-sanitizer is: on PATH, beside nvcc, or in NVIDIA's package.

    Raises:
        MissingPackageError: it is nowhere.
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
    """What was said of a case: what its process said itself, and the sanitizer's reports, each in its lines."""

    name: str
    faults: list[str] = field(default_factory=list)
    reports: list[list[str]] = field(default_factory=list)
    ended: bool = False

    def hear(self, line: str) -> None:
        """Takes a line of the sanitizer's. A report begins behind one blank, and goes on behind several."""
        text = line.removeprefix(PREFIX).rstrip()
        if not text or "COMPUTE-SANITIZER" in text or "SUMMARY" in text:
            return
        if not text.startswith("  ") or not self.reports:
            self.reports.append([])
        self.reports[-1].append(text[1:])

    @property
    def lines(self) -> list[str]:
        """All faults and the first report; empty where the case is clean."""
        first = self.reports[0] if self.reports else []
        more = [f"and {len(self.reports) - 1} more"] if len(self.reports) > 1 else []
        return [*self.faults, *first, *more]

    def __str__(self) -> str:
        if not self.lines:
            return f"clean     {self.name}"
        return "\n          ".join([f"REPORTED  {self.name}", *self.lines])


def checked(cases: Sequence[Prepared], device: DeviceInfo, command: Sequence[str], tool: str) -> Iterator[Verdict]:
    """Runs the cases under the sanitizer; where their process dies of one, the others in another process."""
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
            if not done:  # it said why
                return
            left = left[done:]


def sanitized(command: Sequence[str]) -> Iterator[Verdict]:
    """What is said of each case that a process began, and of none of them if anything is."""
    heard = Heard()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            yield from heard.line(line)
    yield from heard.end(process.returncode)


class Heard:
    """What a process says under the sanitizer, as verdicts."""

    def __init__(self) -> None:
        self._outside = self._current = Verdict("outside of the cases")
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._explained = False

    def line(self, line: str) -> Iterator[Verdict]:
        """Takes a line; gives the verdict on a case that is over with it."""
        word, _, rest = line.removeprefix(SAYS).strip().partition(" ")
        if line.startswith(PREFIX):
            self._current.hear(line)
        elif not line.startswith(SAYS):
            self._tail.append(line.rstrip())
        elif word == "fault":
            self._current.faults.append(rest)
        elif word == "ended":
            self._current.ended = True
        else:  # a case begins, or no more does
            yield from self._over()
            self._current = Verdict(rest) if word == "case" else self._outside

    def end(self, code: int) -> Iterator[Verdict]:
        """Takes the exit status; gives the verdict on a case that the process died of, and on what is of no case."""
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
    """Runs each case once, and says which it is at."""
    spec, code, cases = pickle.loads(path.read_bytes())  # noqa: S301 - our own words
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
    """Tells the process outside."""
    print(f"\n{SAYS} {words}", flush=True)


def run_once(device: Device, case: CaseSpec, binaries: Sequence[bytes], *, poison: bool) -> None:
    """Runs a case's steps and compares the result; raises ``ResultError`` where it is wrong."""
    inputs, expected = suite.make_arrays(case)
    record = case.record([digest(code) for code in binaries], "")
    names = [step.function for step in case.steps if isinstance(step, Call)]
    functions = suite.functions(case.bench_text, names) if names else {}
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
        device: where they lie.
        buffers: what the case needs.
        poison: write to those that are no inputs before a check.
    """

    def __init__(self, device: Device, buffers: Sequence[Buffer], *, poison: bool) -> None:
        super().__init__(device, buffers)
        self._poison = poison

    def __enter__(self) -> Self:
        for name in self.names(*Role):
            self._bases[name] = self._device.allocate_untimed(self.nbytes(name))
        return self

    def address(self, name: str) -> int:
        """Where the buffer begins."""
        return self._bases[name]

    def reset(self, bring: Callable[[str, int], None]) -> None:
        """Has inputs brought."""
        if self._poison:
            super().reset(bring)
            return
        for name in self.names(Role.INPUT, Role.INOUT):
            bring(name, self.address(name))


if __name__ == "__main__":
    sys.exit(main())
