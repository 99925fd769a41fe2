"""Show that the same code is unchanged night after night, and that a planted change of 1.5 % is then found.

    python tests/benchmarks/same_code.py [--device cuda:0] [--nights 6] [--slow 1.5] [--run OPTIONS] [--json FILE]

Copies the built-in suite into a git repository in a temporary folder, and runs ``perfsvc run`` as many nights as asked
without a change. Then a commit slows five kernels, each at its largest size: when the first thread has done its work,
it waits until the launch has taken its usual time and the planted share more. One more run with ``--confirm`` should
find these five cases and no other.

``--run`` has further options of ``perfsvc run``, for example the cases to leave out: ``--run "--exclude overlap"``.
"""

import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench import SUITE, Claim, commit, finish, parsed, perfsvc, table

from perfsvc.device.find import find
from perfsvc.model import TIME, Cause, Judgement, Verdict
from perfsvc.store import Store

PLANTED = {
    "vector_add/float4[n=67108864]": ("vector_add/float4.cu", "vector_add_float4"),
    "vector_add/float4_batch[n=67108864]": ("vector_add/float4_batch.cu", "vector_add_float4_batch"),
    "sum_of_cubes/coalesced[n=67108864]": ("sum_of_cubes/coalesced.cu", "cubes_coalesced"),
    "transpose/float4[n=8192]": ("transpose/float4.cu", "transpose_float4"),
    "transpose/swizzled[n=8192]": ("transpose/swizzled.cu", "transpose_swizzled"),
}
"""The slowed cases, each with its source and the kernel in it."""
START = """
    unsigned long long start;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
"""
WAIT = """
    if (n == {n} && blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) {{
        unsigned long long now;
        do {{
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        }} while (now - start < {ns});
    }}
"""
SHORT_S = 20e-6
LAUNCH_S = 3.3e-6
"""About the part of a time that passes before the first thread of a launch runs, and after it ends (on an H200)."""


@dataclass(frozen=True)
class Night:
    """A run: its wall time, and its verdicts on the times of cases over 20 µs."""

    wall_s: float
    judgements: Sequence[Judgement]

    def share(self, verdict: Verdict) -> float:
        """Return the share of the series with a verdict."""
        return sum(judgement.verdict is verdict for judgement in self.judgements) / len(self.judgements)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of series for each verdict, or for the cause of those that moved without a change of the code."""
        blameless = [
            judgement.cause if judgement.cause and judgement.cause.blameless else judgement.verdict
            for judgement in self.judgements
        ]
        return Counter(map(str, blameless))


class Repository:
    """The suite in a git repository of its own, with a database."""

    def __init__(self, folder: Path, device: str, options: Sequence[str]) -> None:
        self._folder = folder
        self._command = ["run", "--device", device, "--suite", "kernels", "--db", "perfsvc.db", *options]
        self.database = folder / "perfsvc.db"
        shutil.copytree(SUITE, folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
        commit(folder, "First", "kernels")

    def slow(self, times_s: Mapping[str, float], share: float) -> None:
        """Commit code that slows the planted cases; ``times_s`` has their usual times."""
        for case, (source, kernel) in PLANTED.items():
            path = self._folder / "kernels" / source
            n = case.partition("n=")[2].rstrip("]")
            ns = round(1e9 * (times_s[case] * (1 + share) - LAUNCH_S))
            head, name, tail = path.read_text().partition(f"void {kernel}(")
            signature, brace, body = tail.partition("{")
            end = _end_of_block(body)
            wait = WAIT.format(n=n, ns=ns)
            path.write_text(f"{head}{name}{signature}{brace}{START}{body[:end]}{wait}{body[end:]}")
        commit(self._folder, "Slow five kernels", "kernels")

    def night(self, *options: str) -> Night:
        """Run the suite, and return the verdicts of the run."""
        began = time.monotonic()
        perfsvc(self._folder, *self._command, *options)
        wall_s = time.monotonic() - began
        with Store.open(self.database) as store:
            run = store.runs.newest()
            judgements = [
                judgement
                for judgement in (store.verdicts.of_run(run.id) if run else ())
                if judgement.series.metric == TIME and (judgement.candidate_s or 0.0) > SHORT_S
            ]
        return Night(wall_s, judgements)


def main() -> int:
    """Run the nights, plant the change, and compare."""
    options = parsed(
        __doc__,
        ("--device", "cuda:0", "one GPU"),
        ("--nights", 6, "nights without a change"),
        ("--slow", 1.5, "the planted change in per cent"),
        ("--run", {"type": shlex.split, "default": []}, "further options of perfsvc run"),
        ("--keep", Path, "copy the database to this file after each night"),
    )
    if options.nights < 3:
        sys.exit("--nights: the claim begins with the third night")
    (device,) = find([options.device])
    if device.kind != "cuda":
        sys.exit("--device: the waiting threads need a GPU")
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder), options.device, options.run)
        nights: list[Night] = []
        for number in range(1, options.nights + 1):
            nights.append(_shown(number, repository.night()))
            if options.keep:
                shutil.copy(repository.database, options.keep)
        usual = {judgement.series.case.id: judgement.candidate_s or 0.0 for judgement in nights[-1].judgements}
        repository.slow(usual, options.slow / 100)
        planted = _shown(options.nights + 1, repository.night("--confirm"))
        if options.keep:
            shutil.copy(repository.database, options.keep)
    slower = [
        judgement
        for judgement in planted.judgements
        if judgement.verdict is Verdict.REGRESSION and judgement.cause is Cause.KERNEL
    ]
    shown = [[j.series.case.id, f"{j.ratio:.4f}", str(j.cause)] for j in slower]
    print("\n" + table(["found after the planted change", "ratio", "cause"], shown))
    names = {judgement.series.case.id for judgement in slower}
    claims = [
        Claim(
            "from the third night on, series over 20 µs that are not unchanged, in the worst night",
            100 * max(1 - night.share(Verdict.UNCHANGED) for night in nights[2:]),
            3.0,
            " %",
        ),
        Claim("series called slower by their code without a change", sum(map(_blamed, nights)), 0),
        Claim("planted cases that were not found and confirmed", len(PLANTED.keys() - names), 0),
        Claim("other cases that were called slower by their code", len(names - PLANTED.keys()), 0),
    ]
    return finish(
        claims,
        options.json,
        device=device.model,
        driver=device.driver,
        nights=[{"wall_s": night.wall_s, **night.counts} for night in (*nights, planted)],
    )


def _end_of_block(text: str) -> int:
    """Return where the brace stands that closes a block; ``text`` begins after the opening brace."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if not depth:
            return place
    raise ValueError("the block does not end")


def _shown(number: int, night: Night) -> Night:
    counts = ", ".join(f"{count} {what}" for what, count in night.counts.items())
    print(f"night {number}: {night.wall_s:.0f} s, {len(night.judgements)} series over 20 µs: {counts}", flush=True)
    for judgement in night.judgements:
        if judgement.verdict not in {Verdict.UNCHANGED, Verdict.NEW}:
            print(f"    {judgement.series.case.id} {judgement.verdict} {judgement.cause or ''}: {judgement.reason}")
    return night


def _blamed(night: Night) -> int:
    """Return how many series are called slower, and not by the device or by chance."""
    return sum(
        judgement.verdict is Verdict.REGRESSION and not (judgement.cause and judgement.cause.blameless)
        for judgement in night.judgements
    )


if __name__ == "__main__":
    sys.exit(main())
