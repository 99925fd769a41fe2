"""The case that measures how fast the link between two GPUs of a group moves bytes."""

from pathlib import Path

from perfsvc.measure.protocol.messages import Sampling
from perfsvc.model import (
    LINK,
    Array,
    Buffer,
    CacheState,
    Case,
    DeviceInfo,
    Kind,
    PeerCopy,
    Role,
    Tolerance,
    Work,
)
from perfsvc.service.peaks.kernels import BENCHMARK, OURS
from perfsvc.suite import CaseSpec

NBYTES = 256 << 20
"""The bytes of a copy: shorter copies do not reach the full rate of a link."""
SAMPLING = Sampling(samples=100, seconds=0.5, least=20)


def specs(device: DeviceInfo) -> tuple[CaseSpec, ...]:
    """Return the case that copies from the first GPU of a group to the second; none on the CPU device."""
    if device.kind == "cpu":
        return ()
    source, target = Array("from", "uint32", (NBYTES // 4,)), Array("to", "uint32", (NBYTES // 4,))
    spec = CaseSpec(
        case=Case(BENCHMARK, LINK, version=OURS),
        kind=Kind.KERNEL,
        cache=CacheState.WARM,
        requires=(),
        units=(),
        buffers=(Buffer(source, Role.SCRATCH, gpu=0), Buffer(target, Role.SCRATCH, gpu=1)),
        steps=(PeerCopy(source.name, target.name),),
        work=Work(link_bytes=NBYTES),
        tolerance=Tolerance(max=0.0, mean=0.0),
        bench=Path(__file__),
        bench_text="",
        seed=0,
        gpus=device.gpus,
    )
    return (spec,)
