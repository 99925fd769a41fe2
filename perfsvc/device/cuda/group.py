"""Several NVIDIA GPUs as one ``Device``, for cases that use them at once; they exchange data with NCCL."""

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from perfsvc.device import groups
from perfsvc.device.cuda import listing, peers
from perfsvc.device.cuda.device import CudaDevice
from perfsvc.device.links import interconnect
from perfsvc.device.protocol import Reduction
from perfsvc.errors import LaunchError, NoDeviceError
from perfsvc.installation import nccl_command, nccl_library
from perfsvc.model import Batch, Conditions, ReplayRecord

# The numbers of nccl.h, which have not changed since version 2.10.
_DTYPES: Mapping[str, int] = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
_OPERATIONS: Mapping[Reduction, int] = {"sum": 0, "max": 2, "min": 3}
_Handle = ctypes.c_void_p


class Communicators:
    """A communicator of NCCL for each GPU of a group, all in this process.

    Making them takes NCCL about a second, and some memory of each GPU.

    Args:
        ordinals: the numbers that CUDA gives the GPUs in this process.

    Raises:
        LaunchError: NCCL is missing, or cannot connect the GPUs.
    """

    def __init__(self, ordinals: Sequence[int]) -> None:
        try:
            self._library = ctypes.CDLL(nccl_library() or "libnccl.so.2")
        except OSError as error:
            raise LaunchError(f"NCCL cannot be loaded: {error}", cure=nccl_command()) from error
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._handles = (_Handle * len(ordinals))()
        devices = (ctypes.c_int * len(ordinals))(*ordinals)
        self._check("ncclCommInitAll", self._library.ncclCommInitAll(self._handles, len(ordinals), devices))

    def all_reduce(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        dtype: str,
        count: int,
        operation: Reduction,
        *,
        streams: Sequence[int],
    ) -> None:
        """Queue an all-reduce on the stream of each GPU; addresses and streams are in the order of the GPUs."""
        library, kind, how = self._library, _DTYPES[dtype], _OPERATIONS[operation]
        self._check("ncclGroupStart", library.ncclGroupStart())
        for source, target, handle, stream in zip(sources, targets, self._handles, streams, strict=True):
            result = library.ncclAllReduce(
                _Handle(source), _Handle(target), ctypes.c_size_t(count), kind, how, _Handle(handle), _Handle(stream)
            )
            self._check("ncclAllReduce", result)
        self._check("ncclGroupEnd", library.ncclGroupEnd())

    def close(self) -> None:
        """Free the communicators."""
        with contextlib.suppress(LaunchError):  # a lost GPU
            for handle in self._handles:
                self._check("ncclCommDestroy", self._library.ncclCommDestroy(_Handle(handle)))

    def _check(self, call: str, result: int) -> None:
        """Raise ``LaunchError`` if a call failed; the worker then ends, because the communicators are not usable."""
        if result:
            why = self._library.ncclGetErrorString(result).decode(errors="replace")
            raise LaunchError(f"{call} failed: {why}", cure="see why with NCCL_DEBUG=INFO", fatal=True)


_READING_S = 0.003
"""Seconds that a reading of a GPU's conditions takes; a shorter batch has none."""


class CudaGroup(CudaDevice):
    """A group of GPUs. The group itself is its lead, the first GPU; ``on`` returns the other GPUs.

    The lead has the blocking kernel and the events that time a sample. What a sample queues on the other GPUs waits for
    the lead's stream (``fork``), and the lead's stream waits for it at the end (``join``). So the two events of the
    lead enclose the work of all GPUs. The context of the lead is current, except while another GPU is called.

    Args:
        uuids: the UUIDs of the GPUs, the lead first.
        helper_kernels: ``perfsvc.device.memory.unit`` compiled for the GPUs.

    Raises:
        NoDeviceError: a GPU is missing, or cannot be opened.
    """

    def __init__(self, uuids: Sequence[str], helper_kernels: bytes) -> None:
        self._others: list[CudaDevice] = []
        self._communicators: Communicators | None = None
        self._order: peers.Order | None = None
        super().__init__(uuids[0], helper_kernels)
        try:
            self._ordinals = [listing.ordinal_of(uuid) for uuid in uuids]
            for uuid in uuids[1:]:
                other = CudaDevice(uuid, helper_kernels)
                other.step_aside()
                self._others.append(other)
            self._connect()
        except LaunchError as error:
            self.close()
            raise NoDeviceError(f"the GPUs cannot be connected: {error.what}", cure=error.cure) from error
        except NoDeviceError:
            self.close()
            raise
        self.info = groups.best_group([member.info for member in (self, *self._others)], len(uuids), interconnect)

    def _connect(self) -> None:
        """Let each GPU access the memory of all others where the hardware can, and make the events that order them."""
        members = (self, *self._others)
        self._contexts: list[peers.Handle] = []
        events = []
        for member in members:
            with member.activated():
                self._contexts.append(peers.current_context())
                events.append(peers.new_event())
        self._order = peers.Order([member.stream for member in members], events)
        self._inaccessible = peers.inaccessible(self._ordinals)
        for first, member in enumerate(members):
            with member.activated():
                for second, context in enumerate(self._contexts):
                    if first != second and (first, second) not in self._inaccessible:
                        peers.enable_access(context)

    def on(self, gpu: int) -> CudaDevice:  # type: ignore[override] # the GPUs of a group are no groups
        """Return one GPU of the group."""
        return self._others[gpu - 1] if gpu else self

    def require_access(self, gpu: int, other: int) -> None:
        """Raise ``LaunchError`` if kernels of a GPU cannot access the memory of another one."""
        if (gpu, other) in self._inaccessible:
            raise LaunchError(
                f"GPU {gpu} cannot access the memory of GPU {other}: there is neither NVLink nor peer access by PCIe",
                cure="copy the array with peer_copy, or measure on other GPUs (perfsvc devices shows the connections)",
            )

    def fork(self) -> None:
        """Have the other GPUs wait for what is queued on the lead."""
        if self._order:
            self._order.fork()

    def join(self) -> None:
        """Have the lead wait for what is queued on the other GPUs."""
        if self._order:
            self._order.join()

    def peer_copy(self, target: tuple[int, int], source: tuple[int, int], nbytes: int) -> None:
        """Queue a copy on the stream of the GPU that has the source."""
        contexts, stream = self._contexts, self.on(source[0]).stream
        peers.copy(target[1], contexts[target[0]], source[1], contexts[source[0]], nbytes, stream)

    def all_reduce(
        self, sources: Sequence[int], targets: Sequence[int], dtype: str, count: int, operation: Reduction
    ) -> None:
        """Queue NCCL's all-reduce on the stream of each GPU; the first call connects the GPUs, and waits for them."""
        self._communicators = self._communicators or Communicators(self._ordinals)
        streams = [member.stream for member in (self, *self._others)]
        self._communicators.all_reduce(sources, targets, dtype, count, operation, streams=streams)
        peers.make_current(self._contexts[0])  # NCCL changes the current GPU

    def synchronize(self) -> None:
        """Wait for all GPUs."""
        for other in self._others:
            other.synchronize()
        super().synchronize()

    @contextlib.contextmanager
    def measuring(self, record: ReplayRecord, replica: int) -> Iterator[None]:
        """Prepare all GPUs to measure a case; the NVTX range is that of the lead."""
        for other in self._others:
            other.conditions()  # what happened before
        with super().measuring(record, replica):
            yield

    def conditions(self) -> Conditions:
        """Return the conditions of all GPUs as one: the highest temperature, the total power, and every fault."""
        return _together([super().conditions(), *(other.conditions() for other in self._others)])

    def batch(
        self,
        sample: Callable[[], None],
        count: int,
        *,
        clock: Literal["device", "host"],
        evict_bytes: int,
        blocked: bool,
        before: Callable[[int], None] | None = None,
        restore: Callable[[], None] | None = None,
        seconds: Callable[[], float] | None = None,
    ) -> Batch:
        """Time samples one by one; before each of them, the caches of all GPUs are emptied."""

        def prepare(number: int) -> None:
            if before:
                before(number)
            if restore:  # before the caches are emptied
                restore()
            for other in self._others:
                other.evict(evict_bytes)
            self.join()

        started = time.perf_counter()
        batch = super().batch(
            sample,
            count,
            clock=clock,
            evict_bytes=evict_bytes,
            blocked=blocked,
            before=prepare if evict_bytes else before,
            restore=None if evict_bytes else restore,
            seconds=seconds,
        )
        if time.perf_counter() - started < _READING_S:
            return batch
        of_others = [other.conditions() for other in self._others]
        return replace(batch, conditions=_together([batch.conditions, *of_others]))

    def energy(self, sample: Callable[[], None], seconds: float) -> float | None:  # noqa: ARG002 - it is not measured
        """Return None: the counters of several GPUs do not advance at the same time."""
        return None

    def close(self) -> None:
        """Free everything on all GPUs, the lead last."""
        if not self._open:
            return
        if self._communicators:
            self._communicators.close()
            peers.make_current(self._contexts[0])
        if self._order:
            self._order.close()
            self._order = None
        for other in self._others:
            other.close()
        self._others.clear()
        super().close()


def _together(conditions: Sequence[Conditions]) -> Conditions:
    """Return the conditions of several GPUs as one; clocks are those of the first GPU, the lead."""
    temperatures = [each.temperature_c for each in conditions if each.temperature_c is not None]
    powers = [each.power_w for each in conditions if each.power_w is not None]
    return replace(
        conditions[0],
        temperature_c=max(temperatures, default=None),
        power_w=sum(powers) if len(powers) == len(conditions) else None,
        slowdowns=tuple(dict.fromkeys(slowdown for each in conditions for slowdown in each.slowdowns)),
        ecc_errors=sum(each.ecc_errors for each in conditions),
        xids=tuple(dict.fromkeys(xid for each in conditions for xid in each.xids)),
        others=tuple(dict.fromkeys(process for each in conditions for process in each.others)),
    )
