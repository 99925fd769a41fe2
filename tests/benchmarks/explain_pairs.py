"""Check that pairs of kernels that differ in one thing are explained by that thing, on a GPU with Nsight Compute.

    python tests/benchmarks/explain_pairs.py --out reports          # profiles and explains
    python tests/benchmarks/explain_pairs.py --reports reports      # explains existing reports, without a GPU

The kernels are in tests/gpu/suites/causes. Each is launched once by a process of its own under ncu, with the sections
that perfsvc's metrics come from; the compressed reports stay in the folder. A case's profile takes about six seconds on
an H100. tests/data/ncu/pairs has the reports of an H100.
"""

import argparse
import contextlib
import lzma
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import Claim, Ready, alone_on, finish, ready, table

from perfsvc import suite
from perfsvc.errors import PerfsvcError
from perfsvc.measure.plan.order import Task
from perfsvc.measure.protocol import profiling_folder
from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import Explanation, Profile, ReasonKind
from perfsvc.profile.commands import NcuProfiler
from perfsvc.profile.explain import explain
from perfsvc.profile.profiler import LIMIT_S, OWN
from perfsvc.profile.reports import read
from perfsvc.suite import StoredBench, isolated

SUITE = Path(__file__).parent.parent / "gpu" / "suites" / "causes"
SUFFIX = ".ncu-rep.xz"
MOST_BYTES = 300_000
"""The largest compressed report that may be stored."""


@dataclass(frozen=True)
class Pair:
    """Two variants of a benchmark, and the reason why the second is slower."""

    benchmark: str
    before: str
    after: str
    reason: ReasonKind

    @property
    def cases(self) -> tuple[str, str]:
        """Both variants as ``benchmark/variant``."""
        return f"{self.benchmark}/{self.before}", f"{self.benchmark}/{self.after}"


PAIRS = (
    Pair("transpose", "padded", "unpadded", ReasonKind.BANK_CONFLICTS),
    Pair("transpose", "padded", "naive", ReasonKind.UNCOALESCED),
    Pair("stream", "coalesced", "strided", ReasonKind.UNCOALESCED),
    Pair("stream", "coalesced", "doubled", ReasonKind.TRAFFIC),
    Pair("arithmetic", "in_registers", "spilled", ReasonKind.SPILLS),
    Pair("chase", "full", "half", ReasonKind.OCCUPANCY),
    Pair("arithmetic", "once", "twice", ReasonKind.INSTRUCTIONS),
    Pair("chase", "full", "tail", ReasonKind.TAIL),
    Pair("reuse", "in_order", "scattered", ReasonKind.HIT_RATE),
    Pair("product", "tensor", "fma", ReasonKind.TENSOR),
    Pair("arithmetic", "together", "parted", ReasonKind.DIVERGENCE),
    Pair("arithmetic", "by_itself", "in_step", ReasonKind.STALLS),
)
"""The clearest pairs first: if time runs out, the last pairs are skipped."""


def main() -> int:
    """Profile, explain and print the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="one GPU (default: cuda:0)")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="write the reports here (default: reports)")
    parser.add_argument("--reports", type=Path, help="explain the reports in this folder, and launch nothing")
    parser.add_argument("--only", action="append", help="a benchmark of the suite; may be repeated (default: all)")
    parser.add_argument("--seconds", type=float, default=180.0, help="profile no case after this (default: 180)")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    pairs = [pair for pair in PAIRS if not arguments.only or pair.benchmark in arguments.only]
    failures: dict[str, str] = {}
    if arguments.reports is None:
        failures = profile(pairs, arguments.device, arguments.out, arguments.seconds)
    folder = arguments.reports or arguments.out
    found, unread = explained(pairs, folder)
    print(table(("pair", "factor", "expected", "found", "share"), [row(pair, found.get(pair)) for pair in pairs]))
    for pair, explanation in found.items():
        print(f"\n{' → '.join(pair.cases)}: {explanation.sentence}")
    for what, why in {**failures, **unread}.items():
        print(f"\n{what}: {why}")
    results = [{"pair": asdict(pair), **asdict(explanation)} for pair, explanation in found.items()]
    return finish(claims(pairs, found, folder), arguments.json, pairs=results, failures={**failures, **unread})


# --- profiling -------------------------------------------------------------------------------------------------------


def profile(pairs: Sequence[Pair], device: str, folder: Path, limit_s: float) -> dict[str, str]:
    """Profile every case of the pairs into a folder; return for each case without a report the reason."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    made = ready(SUITE, device, Sampling(samples=1))
    print(f"{made.device.model}: {len(made.tasks)} cases compiled after {time.monotonic() - began:.1f} s", flush=True)
    tasks = {f"{task.record.case.benchmark}/{task.record.case.variant}": task for task in made.tasks}
    failures = {}
    with alone_on(made.device):
        for case in dict.fromkeys(case for pair in pairs for case in pair.cases):
            if case not in tasks:
                failures[case] = "this device cannot run it"
            elif time.monotonic() - began > limit_s:
                failures[case] = f"not profiled: {limit_s:g} s are over"
            elif why := profile_one(made, tasks[case], report_of(case, folder)):
                failures[case] = why
    print(f"profiled after {time.monotonic() - began:.1f} s\n", flush=True)
    return failures


def profile_one(made: Ready, task: Task, report: Path) -> str:
    """Profile a case; return why there is no report, or an empty text if there is one."""
    began = time.monotonic()
    try:
        with folder_of(made, task) as folder:
            made_by_ncu = folder / "launch.ncu-rep"
            NcuProfiler(OWN).run(
                profiling_folder.command(folder), made_by_ncu, environment=profiling_folder.environment()
            )
            report.write_bytes(lzma.compress(made_by_ncu.read_bytes()))
    except PerfsvcError as error:
        return str(error)
    print(f"  {task.record.case.id}: {time.monotonic() - began:.1f} s", flush=True)
    return ""


@contextlib.contextmanager
def folder_of(made: Ready, task: Task) -> Iterator[Path]:
    """Yield the folder of a profiling launch of a case's first launch."""
    record = task.record
    bench = StoredBench(suite.discover(SUITE).benchmark(record.case.benchmark).text, record.case.benchmark)
    inputs = isolated.replay_inputs(bench, record.case.point, record.seed)
    with tempfile.TemporaryDirectory(prefix="perfsvc-") as folder:
        path = Path(folder)
        profiling_folder.begin(path, made.device, made.helper_kernels, LIMIT_S)
        locations = profiling_folder.prepare(path, task.modules, inputs)
        profiling_folder.add(path, 0, profiling_folder.ProfilingLaunch(record, record.case.id, locations, launch=0))
        profiling_folder.end(path)
        yield path


def report_of(case: str, folder: Path) -> Path:
    """Return the path of a case's report."""
    return folder / f"{case.replace('/', '-')}{SUFFIX}"


# --- explaining ------------------------------------------------------------------------------------------------------


def explained(pairs: Sequence[Pair], folder: Path) -> tuple[dict[Pair, Explanation], dict[str, str]]:
    """Return the explanation of each pair, and the error of each pair that cannot be explained."""
    found, unread = {}, {}
    for pair in pairs:
        try:
            found[pair] = explain(*(profile_of(report_of(case, folder)) for case in pair.cases))
        except (PerfsvcError, FileNotFoundError) as error:
            unread[" → ".join(pair.cases)] = str(error)
    return found, unread


def profile_of(report: Path) -> Profile:
    """Return the profile in a compressed report."""
    with tempfile.TemporaryDirectory(prefix="perfsvc-") as folder:
        unpacked = Path(folder, report.stem)
        unpacked.write_bytes(lzma.decompress(report.read_bytes()))
        return read(unpacked)


def row(pair: Pair, found: Explanation | None) -> list[str]:
    """Return a row of the table."""
    first = found.reasons[0] if found and found.reasons else None
    return [
        " → ".join((f"{pair.benchmark}: {pair.before}", pair.after)),
        f"{found.factor:.2f}" if found else "–",
        pair.reason.value,
        first.kind.value if first else "–",
        f"{100 * first.share:.0f} %" if first else "–",
    ]


def claims(pairs: Sequence[Pair], found: Mapping[Pair, Explanation], folder: Path) -> list[Claim]:
    """Return the claims of the script."""
    right = [pair for pair, explanation in found.items() if kind_of(explanation) is pair.reason]
    sizes = [report_of(case, folder).stat().st_size for pair in found for case in pair.cases]
    return [
        Claim(f"pairs not explained by their difference, of {len(pairs)}", float(len(pairs) - len(right)), 0),
        Claim("size of the largest report", max(sizes) / 1e3 if sizes else None, MOST_BYTES / 1e3, " kB"),
    ]


def kind_of(explanation: Explanation) -> ReasonKind | None:
    """Return the kind of the first reason."""
    return explanation.reasons[0].kind if explanation.reasons else None


if __name__ == "__main__":
    sys.exit(main())
