"""The web server as an ASGI application, composed of the routes of each module."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from perfsvc.errors import PerfsvcError
from perfsvc.server import answers, badges, feeds, metrics, site
from perfsvc.server.access import ForbiddenError
from perfsvc.server.api import ENDPOINTS
from perfsvc.server.changing import actions, forms
from perfsvc.server.endpoints import ROOT
from perfsvc.server.guard import Guard, RequestLimit
from perfsvc.server.kept import LEVEL, SMALLEST_TO_COMPRESS, KeptAnswers
from perfsvc.server.limiting import RefusedError
from perfsvc.server.openapi import document
from perfsvc.server.serving import Serving

THREADS = 10
"""How many requests read the database at a time. With the threads that make answers and store runs, they need at most
the 15 connections of SQLAlchemy's pool."""


def make_app(serving: Serving) -> Starlette:
    """Return the application that serves a database.

    Args:
        serving: the open database and the settings; the caller closes the database when the server has ended.
    """
    documented = document(ENDPOINTS)

    def openapi(_request: Request) -> Response:
        return answers.answer(documented)

    routes: list[BaseRoute] = [
        *(endpoint.route() for endpoint in ENDPOINTS),
        Route(f"{ROOT}/openapi.json", openapi),
        *metrics.routes(),
        *feeds.routes(),
        *badges.routes(),
        *actions.routes(),
        *forms.routes(),
        *site.routes(),
    ]
    counted = metrics.ServerMetrics(serving)
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, settings=serving.server, requests=counted.requests),
            Middleware(RequestLimit, settings=serving.server, limits=serving.limits),
            Middleware(GZipMiddleware, minimum_size=SMALLEST_TO_COMPRESS, compresslevel=LEVEL),
        ],
        exception_handlers=dict.fromkeys((PerfsvcError, ForbiddenError, RefusedError, HTTPException), answers.of_error),
        lifespan=_lifespan,
    )
    app.state.serving = serving
    app.state.metrics = counted
    # Runs are stored one after the other, so that many hosts at once leave the other threads to readers.
    app.state.receiver = ThreadPoolExecutor(1, "store a run")
    app.state.kept = KeptAnswers(serving.store.database.state)
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Limit the threads of requests, so that each finds a connection to the database; end all other threads at last."""
    current_default_thread_limiter().total_tokens = THREADS
    yield
    app.state.kept.close()
    app.state.receiver.shutdown(wait=False, cancel_futures=True)  # a run that is being stored is stored to its end
