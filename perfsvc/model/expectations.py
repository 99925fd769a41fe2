"""What nights are expected to have, because earlier nights had it, and what is missing."""

import shlex
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache


class ExpectedKind(StrEnum):
    """What can go missing."""

    HOST = "host"
    GPU = "gpu"
    CASE = "case"


@dataclass(frozen=True, slots=True)
class Expected:
    """A host, GPU or case that a night had, and that later nights of the host are expected to have.

    Attributes:
        name: the name of the host, the UUID of the GPU, or the id of the case.
        host: the host of the night.
        night: the last night that had it.
        seen: when that night had it.
        scope: the scope of the night's run; empty for a host.
        devices: for a GPU, the devices that the night's settings asked for, so that nights which ask for other GPUs do
            not miss this one; else empty.
        model: the model of a GPU; else empty.
        run: the run of that night; None if it had none, or if the run is no longer stored.
        finding: the finding about its absence; None while it is present.
    """

    kind: ExpectedKind
    name: str
    host: str
    night: int
    seen: datetime
    scope: str = ""
    devices: str = ""
    model: str = ""
    run: int | None = None
    finding: int | None = None

    @property
    def key(self) -> tuple[str, str, ExpectedKind, str, str]:
        """The fields that identify what is expected."""
        return self.host, self.scope, self.kind, self.name, self.devices

    @property
    def suite(self) -> str:
        """The name of the suite's folder; empty for a host."""
        return scope_options(self.scope)[0]

    @property
    def text(self) -> str:
        """The thing in words: ``host a``, ``GPU-1 (NVIDIA H100)``, ``dot/tree[n=64]``."""
        texts = {ExpectedKind.HOST: f"host {self.name}", ExpectedKind.GPU: f"{self.name} ({self.model})"}
        return texts.get(self.kind, self.name)


@cache
def scope_options(scope: str) -> tuple[str, ...]:
    """Return the parts of a run's scope: the name of its suite's folder, then the options that select cases."""
    return tuple(shlex.split(scope)) or ("",)


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that is missing, as one finding reports it.

    Attributes:
        subject: what is missing: ``GPU-1 (NVIDIA H100) on host a``.
        evidence: when the missing thing was last seen, and what else is known about it.
        expected: what is missing: one GPU, one host, or the cases of a benchmark.
    """

    subject: str
    evidence: str
    expected: tuple[Expected, ...]
