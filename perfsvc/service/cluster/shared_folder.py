"""What the command and an agent exchange through a folder that both see: messages, and binaries and files by digest.

Each side appends its messages to a file of its own, and the other side opens this file anew for each look. The file
exists before the agent starts. That matters on NFS, which promises one thing: a host that opens a file sees what was
flushed before. A host may cache the list of a folder, and that a file does not exist, for up to a minute.

Each side also touches its file again and again, so that the other side sees that it lives.

A reader may see a message before all of its bytes have arrived, so each message carries its length and digest. A
message whose digest does not match counts as not arrived yet.
"""

import contextlib
import hashlib
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from perfsvc import units
from perfsvc.errors import InfrastructureError
from perfsvc.files import Folder, write
from perfsvc.model import digest
from perfsvc.service.cluster.messages import SILENT_AGENT_S, Blobs

REPORT_S = 30.0
"""Seconds without an answer of the shared folder until the user learns what the run waits for."""
FOLDER_S = SILENT_AGENT_S
"""Seconds without an answer of the shared folder until the run ends. A server that restarts takes minutes."""

T = TypeVar("T")


def within(limit_s: float, work: Callable[[], T], late: InfrastructureError) -> T:
    """Return what ``work`` returns.

    Raises:
        InfrastructureError: ``late``, if ``work`` takes longer than ``limit_s`` seconds. The processes that it has
            started are killed.
    """
    result, thread = _begin(work)
    if not futures.wait([result], limit_s).done:
        _kill_children(thread)
        raise late
    return result.result()


class FolderCalls:
    """Makes calls that read or write the shared folder.

    Args:
        folder: the folder, for messages.
        report: receives a message when a call takes longer than ``REPORT_S``.
    """

    def __init__(self, folder: Path, report: Callable[[str], object]) -> None:
        self._folder = folder.absolute()
        self._report = report
        self._late: InfrastructureError | None = None

    def __call__(self, work: Callable[[], T], limit_s: float | None = None) -> T:
        """Return what ``work`` returns. By default it may take ``FOLDER_S`` seconds.

        Raises:
            InfrastructureError: this call, or an earlier one, has taken longer than its limit.
        """
        if self._late:
            raise self._late
        limit_s = FOLDER_S if limit_s is None else limit_s
        result, _ = _begin(work)
        if not futures.wait([result], min(REPORT_S, limit_s)).done and limit_s > REPORT_S:
            self._report(
                f"the shared folder {self._folder} has not answered for {units.duration_text(REPORT_S)}: the run waits "
                f"for it, and ends after {units.duration_text(limit_s)} without an answer"
            )
            futures.wait([result], limit_s - REPORT_S)
        if not result.done():
            self._late = InfrastructureError(
                f"the shared folder {self._folder} has not answered for {units.duration_text(limit_s)}",
                cure=f"see whether ls {self._folder} answers on this host; if its file server stays away, name a "
                "folder on another disk: the key folder of [slurm]",
            )
            raise self._late
        return result.result()


def _begin(work: Callable[[], T]) -> tuple[Future[T], threading.Thread]:
    """Begin a call in a thread of its own; return its result to come, and the thread."""
    result: Future[T] = Future()

    def call() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for the result
            result.set_exception(error)

    # Not from a pool: the end of this process would wait for the threads of a pool.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return result, thread


def _kill_children(thread: threading.Thread) -> None:
    """Kill the processes that a thread has started and that still run."""
    with contextlib.suppress(OSError):  # the thread or a process has ended just now
        for pid in Path(f"/proc/self/task/{thread.native_id}/children").read_text(encoding="ascii").split():
            os.kill(int(pid), signal.SIGKILL)


_HEADER = struct.Struct("<Q32s")
"""The length of a message in bytes, and its SHA-256 digest."""
ARRIVAL_S = 120.0
"""Seconds after which a message that has not arrived whole counts as damaged. NFS shows new bytes within a minute."""


TOUCH_S = 5.0
"""Seconds between two signs of life of an agent."""


def create(path: Path) -> None:
    """Create the empty file of one side's messages; raise ``OSError`` if that fails."""
    write(path, b"", mode=0o600)


class Outbox:
    """Appends messages to a file that exists and that no other object writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0
        self._touch_at = 0.0

    def show_life(self) -> None:
        """Show the reader that this process lives, at most once in ``TOUCH_S`` seconds."""
        if time.monotonic() >= self._touch_at:
            self._touch_at = time.monotonic() + TOUCH_S
            with contextlib.suppress(OSError):  # the reader notices it
                os.utime(self._path)

    def send(self, messages: Iterable[bytes]) -> None:
        """Append messages; raise ``OSError`` if the file is gone or the disk is full."""
        data = b"".join(_HEADER.pack(len(text), hashlib.sha256(text).digest()) + text for text in messages)
        with self._path.open("r+b") as file:  # closing it makes the messages visible on other hosts, also on NFS
            file.seek(self._end)
            file.write(data)
        self._end += len(data)


class Inbox:
    """Reads the messages of a file.

    Attributes:
        touched_ns: when the file was last written or touched, by the clock of its disk; of the last read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.touched_ns = 0
        self._end = 0
        self._incomplete_since: float | None = None

    def has_more(self) -> bool:
        """Return whether the file has become longer; raise ``OSError`` if it is gone."""
        with self._path.open("rb") as file:
            return file.seek(0, os.SEEK_END) > self._end

    def read(self) -> list[bytes]:
        """Return the messages that have arrived since the last call.

        Raises:
            OSError: the file is gone.
            ValueError: a message is damaged.
        """
        with self._path.open("rb") as file:
            self.touched_ns = os.fstat(file.fileno()).st_mtime_ns
            file.seek(self._end)
            data = file.read()
        messages, at = [], 0
        while len(data) - at >= _HEADER.size:
            length, expected = _HEADER.unpack_from(data, at)
            text = data[at + _HEADER.size : at + _HEADER.size + length]
            if len(text) < length or hashlib.sha256(text).digest() != expected:
                break
            messages.append(text)
            at += _HEADER.size + length
        self._end += at
        if at or at == len(data):
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = time.monotonic()
        elif time.monotonic() - self._incomplete_since > ARRIVAL_S:
            raise ValueError(f"{self._path} is damaged after {self._end} bytes")
        return messages


class LifeSigns:
    """Notices when the other side no longer touches its file. Only changes count: the clocks of two hosts differ.

    Args:
        limit_s: seconds that may be between two touches.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._touched_ns: int | None = None
        self._since_s = 0.0

    def are_missing(self, touched_ns: int) -> bool:
        """Return whether the file has kept this time for longer than the limit.

        Args:
            touched_ns: when the file was last touched, as the file has it now.
        """
        now_s = time.monotonic()
        if touched_ns != self._touched_ns:
            self._touched_ns, self._since_s = touched_ns, now_s
        return now_s - self._since_s > self._limit_s


class BlobFolder:
    """Binaries and files by their digests, each written once by this process. The folder exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: set[str] = set()

    def write(self, blobs: Blobs) -> None:
        """Write the blobs that are not there yet; raise ``OSError`` if that fails."""
        with Folder.open(self._path) as folder:
            for name in blobs.keys() - self._written:
                folder.write(name, blobs[name])
                self._written.add(name)

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """Return blobs by their digests.

        Raises:
            OSError: a blob cannot be read.
            ValueError: a blob is damaged.
        """
        blobs = {name: (self._path / name).read_bytes() for name in names}
        for name, content in blobs.items():
            if digest(content) != name:
                raise ValueError(f"the file {self._path / name} is damaged")
        return blobs
