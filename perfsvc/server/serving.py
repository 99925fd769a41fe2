"""What all requests of a server share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from starlette.requests import HTTPConnection

from perfsvc import judge
from perfsvc.config import ServerSettings, Settings
from perfsvc.keys import Keys
from perfsvc.server.limiting import Limits
from perfsvc.server.sessions import Sessions
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class Serving:
    """What all requests of a server share, at ``app.state.serving``.

    Attributes:
        store: the database; a server without actions opens it for reading only.
        settings: all settings; ``server`` has those of the server.
        pages: renders the pages of the site.
        threshold: the thresholds of the settings, with which comparisons judge; None for the defaults.
        suite: the folder in whose repository git revisions are looked up.
        changing: the database opened for writing; None if this server changes nothing.
        limits: counts the requests of visitors.
        sessions: the sessions of people who signed in.
    """

    store: Store
    settings: Settings
    pages: LivePages
    threshold: judge.ThresholdOption
    suite: Path
    changing: Store | None = None
    limits: Limits = field(default_factory=Limits)
    sessions: Sessions = field(default_factory=lambda: Sessions(Keys()))

    @property
    def server(self) -> ServerSettings:
        """The settings of the server."""
        return self.settings.server

    @property
    def site(self) -> str:
        """The address of the site, with a slash at its end; empty if the settings do not have one."""
        url = self.server.public_url
        return url if not url or url.endswith("/") else f"{url}/"


def serving(connection: HTTPConnection) -> Serving:
    """Return what all requests of the server share."""
    return cast("Serving", connection.app.state.serving)
