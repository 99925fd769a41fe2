"""Send perfsvc hostile messages as if workers had sent them: each costs its case, and nothing else.

    python tests/benchmarks/hostile_frames.py [--frames 10000] [--seed 7]

A pool measures plans on a fake device. Its workers are threads of this process, so that thousands of them take a
minute. Half of the cases get a right reply. Each of the others gets a hostile one: a real reply with changed, cut or
added bytes or with another value at a random place, the reply to another case, a reply that was not asked, file
descriptors, or random bytes. The claims: no plan raises, every case has one measurement, only right replies are
accepted, and no thread, descriptor or memory is left.
"""

import contextlib
import gc
import math
import os
import random
import resource
import socket
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO
from unittest import mock

from hostile import changed_bytes, cut, other_values
from workbench import Claim, finish, parsed, table

from perfsvc.measure.host import pool, worker_handle
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.measure.protocol.messages import CaseJob, CheckedResult, Measured, Ready, Refused, Reply, Request, Sampling
from perfsvc.measure.protocol.shared_arrays import Recipe
from perfsvc.model import (
    Batch,
    CacheState,
    Case,
    Conditions,
    DeviceInfo,
    Error,
    Kind,
    Measurement,
    Package,
    PythonCode,
    ReplayRecord,
    Status,
    Tolerance,
    codec,
    digest,
)
from perfsvc.process import frames
from perfsvc.process.shared_memory import share

DEVICE = DeviceInfo("fake", "fake:device.json", "only", "Fake GPU", "fake")
CASES = 50
"""Hostile cases of a plan; it has as many others."""
PATIENCE_S = 0.05
"""Seconds that a message may take here, where no byte is late."""
FILES = (b"import numpy", b"\x7fELF")
# --- hostile replies -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hostile:
    """What a worker sends instead of its reply.

    Attributes:
        kind: what was done to the reply.
        content: the bytes.
        descriptors: how many file descriptors come with them.
        closes: whether the worker closes its socket afterwards.
        wrong: whether perfsvc must refuse it. Other changes may leave a right reply.
    """

    kind: str
    content: bytes
    descriptors: int = 0
    closes: bool = True
    wrong: bool = True


def right(job: CaseJob) -> Measured:
    """Return a right reply that has every field."""
    batch = Batch((1e-4, 2e-4), blocked=True, kept_ahead=True, conditions=Conditions(1.7e9, 2.6e9, 40.0, 300.0))
    measurement = Measurement(
        job.record.case,
        DEVICE.uuid,
        job.replica,
        Status.OK,
        job.cache,
        samples_s=(1e-4, 2e-4),
        max_error=0.0,
        mean_error=0.0,
        metrics={"sm_cycles": 1e5, "level": -3.0},
        stopped="precision",
        batches=(batch, replace(batch, rejected="the clock fell")),
        warmup=3,
        wall_s=0.5,
        python=PythonCode(
            (Package("numpy", "2.0"),), modules=tuple((f"module{n}", digest(text)) for n, text in enumerate(FILES))
        ),
    )
    return Measured(measurement, usable=True, checked=CheckedResult({"y": digest(b"y")}, Error(0.0, 0.0)))


def frame(text: bytes, blobs: tuple[bytes, ...] = FILES) -> bytes:
    """Return the bytes of a message without descriptors."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        frames.send(ours, text, blobs)
        ours.close()
        with theirs.makefile("rb") as file:
            return file.read()


def hostile(chance: random.Random, job: CaseJob) -> Hostile:
    """Return something that a worker may send instead of its reply to this job."""
    kinds: tuple[Callable[[random.Random, CaseJob], Hostile], ...] = (
        *(_other_value,) * 6,
        *(_changed_bytes,) * 4,
        *(_another_answer, _wrong_sizes, _cut, _random, _more, _descriptors, _wrong_files),
    )
    made = chance.choice(kinds)(chance, job)
    return replace(made, closes=chance.random() < 0.9)


def _other_value(chance: random.Random, job: CaseJob) -> Hostile:
    return Hostile("another value", frame(other_values(chance, codec.encode(Reply(right(job))))), wrong=False)


def _changed_bytes(chance: random.Random, job: CaseJob) -> Hostile:
    """Change bytes of a message, most often of its header."""
    return Hostile("changed bytes", changed_bytes(chance, frame(codec.encode(Reply(right(job)))), 30), wrong=False)


def _another_answer(chance: random.Random, job: CaseJob) -> Hostile:
    """Answer something that was not asked."""
    reply = right(job)
    measurement = reply.measurement
    changes = (
        *(
            {"case": Case("scale", "unknown")},
            {"case": replace(measurement.case, point=(("n", 9),))},
            {"warmup": 1 << 40},
        ),
        *({"device": "another"}, {"replica": measurement.replica + 1}, {"cache": CacheState.WARM}, {"python": None}),
        *({"samples_s": ()}, {"samples_s": (0.0,)}, {"samples_s": (1e-50,)}, {"status": Status.FAILED}),
        *({"metrics": {"a\0b": 1.0}}, {"metrics": {"time": 1.0}}, {"reason": "it failed"}),
    )
    replies = [replace(reply, measurement=replace(measurement, **change)) for change in changes]
    other = chance.choice((Ready(DEVICE), Refused("the device is gone", "look at it"), *replies))
    return Hostile("another answer", frame(codec.encode(Reply(other))))


def _wrong_sizes(chance: random.Random, job: CaseJob) -> Hostile:
    """Announce impossible numbers or sizes of parts."""
    text = codec.encode(Reply(right(job)))
    count = chance.choice((0, 1, 2, 1 << 16, (1 << 16) + 1, (1 << 32) - 1))
    sizes = [chance.choice((0, 1, len(text) + 1, 1 << 31, 1 << 42, (1 << 64) - 1)) for _ in range(min(count, 5))]
    header = struct.pack(f"!cI{len(sizes)}Q", b"-", count, *sizes)
    return Hostile("wrong sizes", header + text)


def _cut(chance: random.Random, job: CaseJob) -> Hostile:
    """End within the message."""
    return Hostile("cut", cut(chance, frame(codec.encode(Reply(right(job))))))


def _random(chance: random.Random, _: CaseJob) -> Hostile:
    content = chance.randbytes(chance.choice((1, 10, 100, 100_000)))
    return Hostile("random", content if chance.random() < 0.5 else frame(content))


def _more(chance: random.Random, job: CaseJob) -> Hostile:
    """Reply, and send something more, which the next case of the worker would read as its own reply."""
    content = frame(codec.encode(Reply(right(job))))
    more = chance.choice((b"-", b"-\0", b"\0" * 100, content, content * 3, frame(b"{}")))
    return Hostile("a reply and more", content + more, wrong=False)


def _descriptors(chance: random.Random, job: CaseJob) -> Hostile:
    """Send file descriptors with a reply; a worker has none to send, but they do no harm."""
    content = frame(codec.encode(Reply(right(job))))
    return Hostile("descriptors", content, chance.choice((1, 2, 3, 100)), wrong=False)


def _wrong_files(chance: random.Random, job: CaseJob) -> Hostile:
    """Send other files than the measurement names."""
    files = chance.choice(((), FILES[:1], (*FILES, b"more"), (FILES[0], b"another"), (b"",) * 1000))
    return Hostile("wrong files", frame(codec.encode(Reply(right(job))), files))


# --- workers ---------------------------------------------------------------------------------------------------------


@dataclass
class Threads:
    """Workers that are threads, in place of fork servers and processes.

    Attributes:
        chance: decides what they send.
        sent: what each hostile case was sent, by its variant.
    """

    chance: random.Random
    sent: dict[str, Hostile] = field(default_factory=dict)
    status: int | None = None

    def take(self, *, unused: bool = False) -> "Threads":
        """Return the server."""
        del unused
        return self

    def fork(self, theirs: socket.socket, output: IO[bytes]) -> "Worker":
        """Start a worker."""
        del output
        return Worker(theirs.dup(), self)

    def wait(self, limit_s: float) -> bool:
        """Return that the server has not ended."""
        del limit_s
        return False

    def last_output(self, size: int) -> str:
        """Return nothing."""
        del size
        return ""


class Worker:
    """A worker that answers right or hostile, as its cases say."""

    def __init__(self, parent: socket.socket, threads: Threads) -> None:
        self.status: int | None = 0
        self._parent, self._threads = parent, threads
        self._thread = threading.Thread(target=self._serve, name="perfsvc-worker")
        self._thread.start()

    def wait(self, limit_s: float) -> bool:
        """Wait for the worker's end; return whether it has ended."""
        self._thread.join(max(limit_s, 0.001))
        return not self._thread.is_alive()

    def kill(self) -> None:
        """End the worker."""
        with contextlib.suppress(OSError):
            self._parent.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Do nothing."""

    def _serve(self) -> None:
        with self._parent, contextlib.suppress(OSError, EOFError):
            self._parent.settimeout(None)
            while (received := frames.receive(self._parent)) is not None:
                for descriptor in received.descriptors:
                    os.close(descriptor)
                job = codec.decode(Request, received.text).body
                if not isinstance(job, CaseJob):
                    self._parent.sendall(frame(codec.encode(Reply(Ready(DEVICE))), ()))
                elif job.record.case.variant.startswith("right"):
                    self._parent.sendall(frame(codec.encode(Reply(right(job)))))
                elif not self._attack(job):
                    return

    def _attack(self, job: CaseJob) -> bool:
        """Send something hostile; return whether the worker lives on."""
        attack = self._threads.sent[job.record.case.variant] = hostile(self._threads.chance, job)
        first = 0
        if attack.descriptors and attack.content:
            with tempfile.TemporaryFile() as file:
                socket.send_fds(self._parent, [attack.content[:1]], [file.fileno()] * attack.descriptors)
            first = 1
        self._parent.sendall(attack.content[first:])
        return not attack.closes


# --- plans -----------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What became of the cases.

    Attributes:
        by_kind: how often each kind of message was accepted or refused.
        problems: what must not happen, with how often it did.
    """

    by_kind: Counter[tuple[str, bool]] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)


def attack(frames_sent: int, seed: int) -> Result:
    """Measure plans until so many hostile messages were sent."""
    result = Result()
    chance = random.Random(seed)
    with mock.patch.object(worker_handle, "MESSAGE_LIMIT_S", PATIENCE_S):
        left = frames_sent
        while left > 0:
            _measure(min(left, CASES), chance, result)
            left -= CASES
    return result


def _measure(cases: int, chance: random.Random, result: Result) -> None:
    """Measure a plan of so many hostile cases and as many others, and note what must not happen."""
    tasks = tuple(_task(f"{kind}-{number}") for kind in ("right", "hostile") for number in range(cases))
    threads = Threads(chance)
    try:
        plan = Plan(tasks, 1, chance.randrange(1 << 30), 60.0)
        measured = list(pool.measure(plan, {"only": DEVICE}, servers=threads))  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - it is what the script looks for
        result.problems[f"a plan raised {type(error).__name__}: {error}"] += 1
        return
    counts = Counter(getattr(measurement, "case", None) for measurement in measured)
    result.problems["cases without exactly one measurement"] += sum(counts[task.record.case] != 1 for task in tasks)
    result.problems["measurements of unknown cases"] += len(counts.keys() - {task.record.case for task in tasks})
    for measurement in measured:
        assert isinstance(measurement, Measurement)
        accepted = measurement.status is Status.OK
        sent = threads.sent.get(measurement.case.variant)
        if sent is None:
            result.problems["right replies refused"] += not accepted
            continue
        result.by_kind[sent.kind, accepted] += 1
        result.problems[f"accepted: {sent.kind}"] += accepted and sent.wrong
        result.problems["accepted impossible values"] += accepted and not _is_possible(measurement)
        result.problems["refused without reason and cure"] += not accepted and not (
            measurement.reason and measurement.cure
        )


def _task(variant: str) -> Task:
    record = ReplayRecord(Case("scale", variant), Kind.KERNEL, (), (), (), "", seed=0)
    arrays = Recipe("none", lambda: share({}, {}))
    return Task("only", record, (), CacheState.COLD, Sampling(recovery_s=0), Tolerance(0, 0), arrays)


def _is_possible(measurement: Measurement) -> bool:
    """Return whether a measurement can be stored and judged."""
    named = (measurement.device, measurement.replica, measurement.cache) == ("only", 0, CacheState.COLD)
    samples = all(0 < seconds < math.inf for seconds in measurement.samples_s) and measurement.samples_s
    metrics = all(
        name.isprintable() and 0 < len(name) < 1000 and math.isfinite(value)
        for name, value in measurement.metrics.items()
    )
    return bool(named and samples and metrics and {digest(file) for file in FILES} == set(measurement.files))


def descriptors() -> int:
    """Return how many file descriptors this process has open."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> int:
    options = parsed(__doc__, ("--frames", 10_000), ("--seed", 7))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERFSVC_LOCKS"] = folder
        attack(CASES, options.seed + 1)  # takes what is taken once
        before, memory_kib = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = attack(options.frames, options.seed)
        left = descriptors() - before
        more_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kib) / 1024
    kinds = sorted({kind for kind, _ in result.by_kind})
    rows = [(kind, f"{result.by_kind[kind, True]}", f"{result.by_kind[kind, False]}") for kind in kinds]
    print(table(("message", "accepted", "refused"), rows))
    workers = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    claims = [
        Claim("hostile messages that were not sent", options.frames - sum(result.by_kind.values()), 0),
        Claim("what must not happen", sum(result.problems.values()), 0),
        Claim("file descriptors left", left, 0),
        Claim("threads left", len(workers), 0),
        Claim("memory taken", more_mib, 200, " MiB"),
    ]
    problems = [f"{what}: {count}" for what, count in (+result.problems).items()]
    return finish(claims, options.json, problems=problems)


if __name__ == "__main__":
    sys.exit(main())
