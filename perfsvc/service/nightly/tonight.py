"""What the stages of a night have in common, and what each of them comes to."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsvc.config import Settings
from perfsvc.device.find import find
from perfsvc.measure.host.device_queue import Stopping
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import DeviceInfo
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.nightly.request import folder_of, log_of, run_request
from perfsvc.service.run.measure import Workers
from perfsvc.service.run.request import RunRequest
from perfsvc.store import NightRow, Store


@dataclass(frozen=True, slots=True)
class Said:
    """What came of a stage.

    Attributes:
        text: in a line.
        exit_code: of a command that does no more than this.
        skipped: there was nothing for it to do.
    """

    text: str
    exit_code: int = 0
    skipped: bool = False


class ToldToStopError(Exception):
    """A stage left off before its end, for the night was told to stop; whoever goes on with it does it again."""


@dataclass(frozen=True, slots=True)
class Tonight:
    """A night that is under way; all that its stages know of each other is in the store.

    Attributes:
        number: of the night.
        settings: what it began with.
        command_line: the same.
        lock: what it took to get the lock, in words.
        stopping: whether it is to stop.
    """

    store: Store
    number: int
    settings: Settings
    command_line: str
    lock: str
    log: NightLog
    servers: ForkServers
    stopping: Stopping

    @property
    def row(self) -> NightRow:
        """The night as it is stored now."""
        return self.store.night(self.number)

    @property
    def run(self) -> int:
        """The number of its run, for the stages that need one."""
        run = self.row.run
        if run is None:
            raise LookupError(f"night {self.number} has no run")
        return run

    @property
    def request(self) -> RunRequest:
        """What its run is asked for."""
        return run_request(self.settings, self.command_line)

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return folder_of(self.settings, self.number)

    @property
    def log_file(self) -> Path:
        """Its log."""
        return log_of(self.settings, self.number)

    def devices(self) -> Mapping[str, DeviceInfo]:
        """The devices that it measures on, by UUID; raises as ``perfsvc.device.find`` does."""
        return {device.uuid: device for device in find(self.settings.run.devices)}

    def workers(self, ended: contextlib.ExitStack) -> Workers:
        """What it measures with."""
        return Workers(self.servers, ended, self.stopping)
