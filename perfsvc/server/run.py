"""Run the server until a signal ends it."""

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType
from urllib.parse import urlunsplit

import structlog
import uvicorn

from perfsvc.config import Settings
from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.server.app import make_app
from perfsvc.server.serving import Serving
from perfsvc.server.site import assets
from perfsvc.service.compare.compare import thresholds
from perfsvc.service.dashboard.live import LivePages
from perfsvc.store import Store

GRACE_S = 10
"""How long requests that have begun may take after the signal."""

SWITCH_S = 0.0002
"""How long a thread may run while others wait for Python's lock."""


def serve(database: str, settings: Settings, report: Callable[[str], None]) -> None:
    """Serve a database until SIGINT or SIGTERM; requests that have begun are answered first.

    Args:
        database: the path or URL of the database.
        settings: all settings; ``server`` says where to listen.
        report: receives a line with the address when the server listens.

    Raises:
        UsageError: the server would listen beyond this machine without settings that say who may read.
        DatabaseError: the database cannot be opened.
        MissingPackageError: plotly is not installed.
        InfrastructureError: the server cannot listen at the address.
    """
    _require_safe(settings)
    assets()  # an error of a missing package comes now, and not with the first request
    with ExitStack() as opened:
        opened.enter_context(switching_often())
        store = opened.enter_context(Store.open(database, create=False, read_only=True))
        changing = opened.enter_context(Store.open(database, create=False)) if settings.server.changes else None
        listening = opened.enter_context(closing(_listen(settings)))
        rules = thresholds(settings, None)
        threshold = rules if rules.rules else None
        pages = LivePages(store, threshold=threshold, forms=changing is not None)
        app = make_app(Serving(store, settings, pages, threshold, settings.suite, changing))
        _log_requests()
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # it would believe X-Forwarded-For of any program on this machine
                timeout_graceful_shutdown=GRACE_S,
                h11_max_incomplete_event_size=64 * 1024,
            )
        )
        host, port = listening.getsockname()[:2]
        report(_where(host, port, everywhere=settings.server.listens_everywhere))
        with _ended_by_signals(server):
            server.run(sockets=[listening])


@contextmanager
def switching_often() -> Iterator[None]:
    """Let the thread that answers readers run soon although other threads make answers.

    Python lets a thread run for 5 ms before another one may. The thread that answers readers lets others run several
    times in each request, whenever it reads or writes, so it would answer about 50 requests a second.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let signals end the server without an error: uvicorn raises each of them again when it has ended."""

    def end(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_safe(settings: Settings) -> None:
    """Raise ``UsageError`` if other machines could read and no setting says whether they may."""
    server = settings.server
    if not server.is_local and server.anonymous is None and not server.trusted_header:
        raise UsageError(
            f"{server.host} can be reached from other machines, and no setting says who may read there",
            cure="set server.anonymous or server.trusted_header (docs/how-to/serve-results.md), or listen at 127.0.0.1",
        )


def _listen(settings: Settings) -> socket.socket:
    """Return a socket that listens at the address of the settings."""
    host, port = settings.server.host, settings.server.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refused(host, port, error) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from error
    return listening


def _where(host: str, port: int, *, everywhere: bool) -> str:
    """Return at which address the server can be opened; 0.0.0.0 is none, so the line then has this machine's name."""
    name = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
    url = urlunsplit(("http", f"{name}:{port}", "/", "", ""))
    return f"serving at {url} and at every other address of this machine" if everywhere else f"serving at {url}"


def _refused(host: str, port: int, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"the server cannot listen at {host}, port {port}: {error.strerror or error}",
        cure="end the program that listens there, or choose another address with --host and --port",
    )


def _log_requests() -> None:
    """Let the server write its log to standard error: a JSON object a line."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
