"""The night that a scheduler starts: its command, folder and environment."""

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import time
from pathlib import Path
from zoneinfo import ZoneInfo

from perfsvc.config import Loaded
from perfsvc.config.file import NAME as CONFIG
from perfsvc.config.file import VARIABLE
from perfsvc.errors import UsageError
from perfsvc.process.programs import python_module
from perfsvc.text import printed

NAME = "perfsvc-nightly"
"""The name that schedulers show."""

VARIABLES_FILE = "perfsvc.env"
"""A file beside perfsvc.toml with a line NAME='value' for each secret variable; only its owner may read it."""

STOP_S = 90
"""Seconds from SIGTERM to SIGKILL: more than a night needs to finish the current case and to commit it."""

LATE_S = 6 * 3600
"""How late a missed night may still begin, in seconds: GPUs are needed by day."""

TOOLS = ("CUDA_HOME", "CUDA_PATH", "PERFSVC_CACHE", "PERFSVC_KEYS", "PERFSVC_LOCKS")
"""Variables that are not secret and that choose compilers, caches, locks and the file of the keys."""


@dataclass(frozen=True, slots=True)
class ScheduledNight:
    """A night as a scheduler starts it.

    Attributes:
        at: the time of day at which the night begins.
        zone: the time zone of ``at``; None for the scheduler's own zone.
        command: the interpreter and its arguments, with absolute paths.
        folder: the working directory: the folder of perfsvc.toml.
        path: ``PATH``, for compilers, Nsight Compute and git.
        plain: variables that are not secret, with their values.
        secret: the names of variables whose values are not printed.
        gpus: how many GPUs to request.
        limit_s: seconds after which the night is terminated.
        user: the user who runs the night.
        writable: the folders outside ``folder`` that the night writes to, besides the default folders of this user.
        owner: the user as whom root's systemd runs the night; empty for root.
        home: the home folder of ``owner``.
    """

    at: time
    zone: ZoneInfo | None
    command: tuple[str, ...]
    folder: Path
    path: str
    plain: Mapping[str, str]
    secret: tuple[str, ...]
    gpus: int
    limit_s: float
    user: str
    writable: tuple[Path, ...] = ()
    owner: str = ""
    home: Path | None = None

    @property
    def variables_file(self) -> Path:
        """The file that sets the secret variables."""
        return self.folder / VARIABLES_FILE


def scheduled_night(
    loaded: Loaded, *, at: time, zone: ZoneInfo | None, gpus: int | None, limit_s: float, user: str
) -> ScheduledNight:
    """Return a night that runs with the settings, the interpreter and the ``PATH`` of this process.

    A night has secret environment variables: the variables that set a setting, and the variables that hold the address
    of a notification target or of the heartbeat.

    Args:
        loaded: the settings, and where each came from.
        at: the time of day at which the night begins.
        zone: the time zone of ``at``; None for the scheduler's own zone.
        gpus: how many GPUs to request; None to count the GPUs that the settings name.
        limit_s: how many seconds the night may take.
        user: the user who runs the night.

    Raises:
        UsageError: a path holds characters that a scheduler would change, or that cannot be printed as they are.
    """
    file = (loaded.path or Path(CONFIG)).resolve()
    config = ["--config", str(file)] if loaded.path and file.name != CONFIG else []
    command = (*python_module("perfsvc"), *config, "nightly")
    plain = {name: os.environ[name] for name in TOOLS if os.environ.get(name)}
    # Each folder of PATH is named once, because cron's lines are short.
    path = ":".join(dict.fromkeys(os.environ.get("PATH", os.defpath).split(":")))
    writable = _writable(loaded, file.parent, plain)
    for text in (*command, str(file.parent), path, *plain.values(), *map(str, writable)):
        # A crontab has no form for a backslash before a percent sign, a unit none for one at the end of a path.
        if re.search(r"[\t\n]|\\%|\\$", text) or printed(text) != text:
            what = f"{text!r} holds characters that not every scheduler takes, or that cannot be printed as they are"
            raise UsageError(what, cure="rename it: letters, digits and spaces are safe")
    used = {origin for origin in loaded.origins.values() if origin.startswith("PERFSVC_")}
    addresses = {*loaded.settings.notify.targets.values(), loaded.settings.nightly.heartbeat} - {""}
    secret = (used | addresses) - plain.keys() - {VARIABLE}
    return ScheduledNight(
        at=at,
        zone=zone,
        command=command,
        folder=file.parent,
        path=path,
        plain=plain,
        secret=tuple(sorted(secret)),
        gpus=_gpus(loaded.settings.run.devices) if gpus is None else gpus,
        limit_s=limit_s,
        user=user,
        writable=writable,
    )


def for_owner(night: ScheduledNight) -> ScheduledNight:
    """Return root's night as a night of the user who owns its folder; return every other night as it is.

    Nights do not need root. A user without an account has no home folder, and root runs this user's nights.
    """
    if night.user != "root":
        return night
    try:
        account = pwd.getpwuid(night.folder.stat().st_uid)
    except KeyError:
        return night
    return night if account.pw_uid == 0 else replace(night, owner=account.pw_name, home=Path(account.pw_dir))


def _writable(loaded: Loaded, folder: Path, plain: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders outside ``folder`` into which a night writes, by its settings and environment variables."""
    settings = loaded.settings
    paths = [settings.nightly.folder, settings.dashboard.folder]
    if "://" not in settings.database:
        paths.append(Path(os.path.expanduser(settings.database)).parent)  # noqa: PTH111 - an unknown user is no error
    paths += [Path(plain[name]) for name in ("PERFSVC_CACHE", "PERFSVC_LOCKS") if name in plain]
    paths += [Path(plain["PERFSVC_KEYS"]).parent] if "PERFSVC_KEYS" in plain else []
    absolute = dict.fromkeys(path.absolute() for path in paths)
    return tuple(path for path in absolute if not path.is_relative_to(folder))


def _gpus(devices: tuple[str, ...]) -> int:
    """Return how many GPUs the specifications of devices name; ``auto`` and ``cuda`` stand for one GPU."""
    named = [name for device in devices if device.startswith("cuda:") for name in device[5:].split(",")]
    return max(len(set(named)), int(any(device in {"auto", "cuda"} for device in devices)))
