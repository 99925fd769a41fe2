"""The folder that the command of a run shares with its jobs: how it is made, and how those of killed commands go."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

from perfsvc.build import cache
from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.files import write
from perfsvc.service.cluster.slurm_agent import BLOBS
from perfsvc.store.runs import is_elsewhere, start_of

LOGS = "logs"
COMMAND = "command"
"""The file that names the process of the command: its host, its id, and when it started. The command touches the file
as long as it lives. A folder without the file holds only logs that are kept."""
OLD_S = 24 * 3600.0
"""Seconds without a touch after which a command on another host counts as gone."""
ROOM = "make room there, or name a folder on another disk: the key folder of [slurm]"
"""What to do about a folder that cannot be written."""
RUN_PREFIX = "run-"
"""What the names of these folders begin with."""

_PROBE, _PROBE_BYTES = "probe", 1 << 16


def make_run_folder(parent: Path | None) -> Path:
    """Make the folder of a run, which only this user can read, and return it. Remove those of commands that are gone.

    The jobs run what they find there. So no other user may change the folder above either: he could replace this one.

    Args:
        parent: the folder of the settings; None for one in the build cache.

    Raises:
        UsageError: the path has characters that cannot be printed.
        InfrastructureError: the folder cannot be made, or other users may change the folder above.
    """
    parent = parent or cache.private_folder(cache.default_folder()) / "slurm"
    if not str(parent.resolve()).isprintable():  # the path becomes a line of the jobs' script
        raise UsageError(
            f"{str(parent)!r} has characters that cannot be printed", cure="name another folder in [slurm]"
        )
    try:
        parent.mkdir(0o700, parents=True, exist_ok=True)
        cache.private_folder(parent)
        folder = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=parent.resolve()))
        (folder / BLOBS).mkdir(0o700)
        write(folder / COMMAND, f"{socket.gethostname()} {os.getpid()} {start_of(os.getpid())}", mode=0o600)
        _remove_abandoned(folder)
    except OSError as error:
        raise unusable(parent, error) from error
    return folder


def _remove_abandoned(own: Path) -> None:
    """Remove the folders beside ``own`` whose commands are gone; their jobs notice that and end."""
    now_s = (own / COMMAND).stat().st_mtime  # by the clock of the disk, which may be another host's
    for folder in own.parent.glob(f"{RUN_PREFIX}*"):
        if folder != own and _is_abandoned(folder, now_s):
            shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path, now_s: float) -> bool:
    try:
        host, pid, start = (folder / COMMAND).read_text(encoding="utf-8").split(" ", 2)
        if host == socket.gethostname() and start and not is_elsewhere(start):
            return start_of(int(pid)) != start
        return now_s - (folder / COMMAND).stat().st_mtime > OLD_S
    except (OSError, ValueError):  # the command is just beginning or ending, or only logs are left
        return False


def unusable(folder: Path, error: OSError) -> InfrastructureError:
    """Return the error about a folder that cannot be made or written."""
    return InfrastructureError(
        f"the folder {folder} for the jobs of Slurm cannot be used: {error.strerror or error}",
        cure="name a folder that all nodes see, and that you can write to: the key folder of [slurm]",
    )


def why_unwritable(folder: Path) -> str:
    """Return why nothing can be written into a folder, such as that its disk is full; empty if something can."""
    try:
        write(folder / _PROBE, bytes(_PROBE_BYTES), mode=0o600)
        (folder / _PROBE).unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""
