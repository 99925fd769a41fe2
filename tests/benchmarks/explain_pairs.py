"""Check that pairs of kernels that differ in one thing are explained by that thing, on a GPU with Nsight Compute.

    python tests/benchmarks/explain_pairs.py --out pairs                  # measures, profiles and explains
    python tests/benchmarks/explain_pairs.py --database pairs/pairs.db    # explains stored profiles, without a GPU

The kernels are in tests/gpu/suites/causes. The script measures them once in a short run, as ``perfsvc run`` does, and
profiles all of them in one session, as ``perfsvc run --profile`` does. The folder gets the database with the profiles,
the source lines and the sources, and the session's report.
"""

import lzma
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import Claim, Silent, finish, parsed, table

from perfsvc.device.find import find
from perfsvc.errors import PerfsvcError
from perfsvc.measure.host.pool import worker_servers
from perfsvc.model import Explanation, HotLine, ProfileResult, ReasonKind
from perfsvc.profile.profiler import OWN
from perfsvc.service.prepare.targets import compile_helper_kernels
from perfsvc.service.profile.case_profiler import (
    CaseProfiler,
    ProfilerSettings,
    ProfilingTask,
    explain_results,
    stored_profiles,
    subject_of,
)
from perfsvc.service.run.request import RunRequest
from perfsvc.service.run.run import run
from perfsvc.store import Store
from perfsvc.suite import Selection

SUITE = Path(__file__).parent.parent / "gpu" / "suites" / "causes"
DATABASE, REPORT = "pairs.db", "session.ncu-rep.xz"
MOST_BYTES = 60_000
"""The most bytes that the report of a launch may take in the database."""
LONGEST_PAIR_S = 4.0
"""Profiling and explaining a pair take at most this long on average."""
LONGEST_EXPLANATION_S = 1.0
"""Explaining a pair from the database takes at most this long."""
ONE_CAUSE = 1
"""As many pairs may have another first reason than expected."""
WRONG_LINES = 4
"""As many pairs may have another first line than expected."""


@dataclass(frozen=True)
class Pair:
    """Two variants of a benchmark, and why the second is slower.

    Attributes:
        reasons: the expected reasons: the first must be found first; of two, both must be among the first two; without
            any, the two are the same and no reason may be found.
        line: a part of the first source line expected for the first reason, in the variant that has the reason; None if
            the reason concerns the whole launch.
    """

    benchmark: str
    before: str
    after: str
    reasons: tuple[ReasonKind, ...] = ()
    line: str | None = None

    @property
    def cases(self) -> tuple[str, str]:
        """Both variants as ``benchmark/variant``."""
        return f"{self.benchmark}/{self.before}", f"{self.benchmark}/{self.after}"

    def __str__(self) -> str:
        return f"{self.benchmark}: {self.before} → {self.after}"


R = ReasonKind
PAIRS = (
    Pair("transpose", "padded", "unpadded", (R.BANK_CONFLICTS,), "= tile[threadIdx.x][row]"),
    Pair("transpose", "padded", "naive", (R.UNCOALESCED,), "b[x * n + y] = a[y * n + x]"),
    Pair("stream", "coalesced", "strided", (R.UNCOALESCED,), "b[i] = 3.0f * a[i]"),
    Pair("stream", "doubled", "strided", (R.UNCOALESCED,), "b[i] = 3.0f * a[i]"),
    Pair("stream", "coalesced", "doubled", (R.TRAFFIC,), "0.0f * none[i]"),
    Pair("arithmetic", "in_registers", "spilled", (R.SPILLS,), "sum[k] = 0.99f * sum[k] + 0.01f"),
    Pair("chase", "full", "half", (R.OCCUPANCY,)),
    Pair("arithmetic", "once", "twice", (R.INSTRUCTIONS,), "for (int step = 0; step < steps; ++step)"),
    Pair("chase", "full", "tail", (R.TAIL,)),
    Pair("reuse", "in_order", "scattered", (R.HIT_RATE,), "sum += a[at < n ? at : at - n]"),
    Pair("product", "tensor", "fma", (R.TENSOR,), "sum += a[threadIdx.y][i] * b[threadIdx.x][i]"),
    Pair("arithmetic", "together", "parted", (R.DIVERGENCE,), "for (int step = 0; step < steps; ++step)"),
    Pair("arithmetic", "by_itself", "in_step", (R.BARRIERS,), "__syncthreads()"),
    Pair("histogram", "own_copies", "one_copy", (R.ATOMICS,), "atomicAdd(&mine[digit(word, place)"),
    Pair("histogram", "own_copies", "no_copy", (R.ATOMICS,), "atomicAdd(&weights[digit(word, place)]"),
    Pair("variance", "single", "double", (R.FP64,), "TYPE value = a[i + k]"),
    Pair("waves", "series", "special", (R.SPECIAL,), "__sinf(x)"),
    Pair("series", "unrolled", "rolled", (R.UNROLLING,), "for (int term = 0; term < TERMS; ++term)"),
    Pair("sections", "one_section", "many_sections", (R.INSTRUCTION_CACHE,), "x = 0.99f * x + (0.01f"),
    Pair("arithmetic", "many_blocks", "few_blocks", (R.SMALL_LAUNCH,)),
    Pair("table", "same_address", "own_address", (R.CONSTANTS,), "weights[(step + threadIdx.x / NEIGHBOURS) % STEPS]"),
    Pair("panel", "loaded_ahead", "loaded_at_once", (R.TENSOR_WAIT,), '"r"(address)'),
    Pair("latency", "padded_full", "unpadded_half", (R.BANK_CONFLICTS, R.OCCUPANCY), "tile[lane][column]"),
    Pair("scale", "once_in_order", "twice_strided", (R.UNCOALESCED, R.INSTRUCTIONS), "b[at] = factor * a[at]"),
    Pair("stream", "coalesced", "renamed"),
    Pair("arithmetic", "once", "once_more"),
)


@dataclass(frozen=True)
class Found:
    """What perfsvc found for a pair, and how many seconds that took."""

    explanation: Explanation
    seconds: float

    @property
    def kinds(self) -> tuple[ReasonKind, ...]:
        """The kinds of the reasons, the first reason first."""
        return tuple(reason.kind for reason in self.explanation.reasons)

    @property
    def line(self) -> HotLine | None:
        """The first line of the first reason, in the variant that has more of what is counted there."""
        if not self.explanation.reasons:
            return None
        reason = self.explanation.reasons[0]
        return next(iter(reason.after or reason.before), None)


def main() -> int:
    """Measure, profile, explain and print the pairs."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one GPU"),
        ("--out", Path("pairs"), "write database and report here"),
        ("--database", Path, "explain the profiles in this database, and launch nothing"),
        ("--only", {"action": "append"}, "a benchmark of the suite; may be repeated"),
        ("--sections", OWN, "what ncu counts"),
    )
    pairs = [pair for pair in PAIRS if not options.only or pair.benchmark in options.only]
    profiled_s, failures = None, {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("PERFSVC_KEYS", str(Path(folder, "keys")))
        database = options.database or options.out / DATABASE
        if options.database is None:
            options.out.mkdir(parents=True, exist_ok=True)
            profiled_s, failures = profile(pairs, options.device, database, options.sections)
        found, unexplained = explain_all(pairs, database)
        report = report_of(database)
    if options.database is None and report:
        (options.out / REPORT).write_bytes(lzma.compress(report, preset=6))
    rows = [row(pair, found.get(pair)) for pair in pairs]
    print(table(("pair", "factor", "expected", "found", "share", "expected line", "found line"), rows))
    for pair, explained in found.items():
        print(f"\n{pair}: {explained.explanation.sentence}")
    for what, why in {**failures, **unexplained}.items():
        print(f"\n{what}: {why}")
    results = [{"pair": asdict(pair), **asdict(explained)} for pair, explained in found.items()]
    claimed = claims(pairs, found, database, profiled_s)
    return finish(claimed, options.json, pairs=results, failures={**failures, **unexplained})


# --- profiling -------------------------------------------------------------------------------------------------------


def profile(pairs: Sequence[Pair], spec: str, database: Path, sections: str) -> tuple[float, dict[str, str]]:
    """Measure the cases of the pairs and profile them into a new database.

    Returns:
        The seconds that profiling took, and for each case without a profile the reason.
    """
    database.unlink(missing_ok=True)
    (device,) = find([spec])
    began = time.monotonic()
    selection = Selection(tuple(dict.fromkeys(pair.benchmark for pair in pairs)))
    with worker_servers() as servers:
        request = RunRequest(
            str(database), SUITE, (spec,), selection, replicas=1, places=1, samples=5, seconds=0.05, profile=True
        )
        run(request, Silent(prints=True), servers)
    helper_kernels = compile_helper_kernels([device], Silent(prints=True))
    print(f"{device.model}: compiled and measured after {time.monotonic() - began:.1f} s", flush=True)
    began, failures = time.monotonic(), {}
    here = {device.uuid: device}
    with Store.open(str(database)) as store:
        cases = {f"{case.benchmark}/{case.variant}": case.id for _, case, _ in store.binaries.of_run(1)}
        tasks = {}
        for case in dict.fromkeys(case for pair in pairs for case in pair.cases):
            try:
                tasks[case] = ProfilingTask(subject_of(store, cases.get(case, case), 1, here))
            except PerfsvcError as error:
                failures[case] = str(error)
        answers = CaseProfiler(store, ProfilerSettings(here, helper_kernels, sections)).profile_all(
            list(tasks.values())
        )
    seconds = time.monotonic() - began
    print(f"{len(tasks)} cases profiled in {seconds:.1f} s\n", flush=True)
    failures |= {case: str(answer) for case, task in tasks.items() if isinstance(answer := answers[task], PerfsvcError)}
    return seconds, failures


# --- explaining ------------------------------------------------------------------------------------------------------


def explain_all(pairs: Sequence[Pair], database: Path) -> tuple[dict[Pair, Found], dict[str, str]]:
    """Return what is found for each pair, and the error of each pair that cannot be explained."""
    found, unexplained = {}, {}
    with Store.open(str(database), create=False) as store:
        cases = {f"{case.benchmark}/{case.variant}": case.id for _, case, _ in store.binaries.of_run(1)}
        for pair in pairs:
            began = time.monotonic()
            try:
                explanation = explain_results(store, *(profile_of(store, cases.get(case, case)) for case in pair.cases))
                found[pair] = Found(explanation, time.monotonic() - began)
            except (PerfsvcError, StopIteration) as error:
                unexplained[str(pair)] = str(error) or "it has no profile"
    return found, unexplained


def profile_of(store: Store, case: str) -> ProfileResult:
    """Return the newest profile of a case."""
    return next(stored_profiles(store, case, 1))


def report_of(database: Path) -> bytes:
    """Return the report of the newest session; nothing if there is none."""
    with Store.open(str(database), create=False) as store:
        binaries = {build.binary for build in store.binaries.of_run(1).values() if build.binary is not None}
        numbers = [result.id or 0 for binary in binaries for result in store.profiles.of_binary(binary)]
        return store.profiles.report(max(numbers)) if numbers else b""


def row(pair: Pair, found: Found | None) -> list[str]:
    """Return a row of the table."""
    first = found.explanation.reasons[0] if found and found.explanation.reasons else None
    return [
        str(pair),
        f"{found.explanation.factor:.2f}" if found else "–",
        " + ".join(pair.reasons) or "none",
        " + ".join(found.kinds[: max(1, len(pair.reasons))]) or "none" if found else "–",
        f"{100 * first.share:.0f} %" if first else "–",
        pair.line or "–",
        (found.line.text if found and found.line else "") or "–",
    ]


def claims(pairs: Sequence[Pair], found: Mapping[Pair, Found], database: Path, profiled_s: float | None) -> list[Claim]:
    """Return the claims of the script."""
    right = [pair for pair, explained in found.items() if is_right(pair, explained)]
    lined = [pair for pair in pairs if pair.line]
    right_lines = [pair for pair in lined if pair in found and has_right_line(pair, found[pair])]
    same = [pair for pair in pairs if not pair.reasons]
    cases = {case for pair in found for case in pair.cases}
    explained_s = sum(explained.seconds for explained in found.values())
    size = len(lzma.compress(report_of(database), preset=1)) / len(cases) / 1e3 if cases else None
    longest = max((explained.seconds for explained in found.values()), default=None)
    made = [
        Claim(f"pairs not explained by their difference, of {len(pairs)}", len(pairs) - len(right), ONE_CAUSE),
        Claim(f"pairs with another line, of {len(lined)}", len(lined) - len(right_lines), WRONG_LINES),
        Claim("reasons found for equal kernels", sum(len(found[pair].kinds) for pair in same if pair in found), 0),
        Claim("size of a launch's report", size, MOST_BYTES / 1e3, " kB"),
        Claim("longest time to explain a pair from the database", longest, LONGEST_EXPLANATION_S, " s"),
    ]
    if profiled_s is not None:
        seconds = (profiled_s + explained_s) / len(pairs)
        made.append(Claim("profiling and explaining a pair, on average", seconds, LONGEST_PAIR_S, " s"))
    return made


def is_right(pair: Pair, found: Found) -> bool:
    """Return whether the expected reasons were found first."""
    return set(found.kinds[: max(1, len(pair.reasons))]) == set(pair.reasons)


def has_right_line(pair: Pair, found: Found) -> bool:
    """Return whether the expected line is the first line of the first reason."""
    return found.line is not None and (pair.line or "") in (found.line.text or "")


if __name__ == "__main__":
    sys.exit(main())
