"""Receives runs that other hosts send: ``POST /api/v1/runs``."""

import asyncio
import hashlib
import tempfile
import zlib
from collections.abc import AsyncIterator
from typing import BinaryIO, cast

import anyio
import anyio.lowlevel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from perfsvc.errors import UsageError
from perfsvc.server.access import WRITE
from perfsvc.server.answers import answer
from perfsvc.server.changing.changes import Attempt, audited, permitted
from perfsvc.server.endpoints import NDJSON, Answer, Endpoint, NoParameters
from perfsvc.server.limiting import RefusedError
from perfsvc.server.serving import serving
from perfsvc.service.transfer.body import ReceivedRun, receive
from perfsvc.store.remote.receiving import ReusedKeyError
from perfsvc.store.remote.rows import SentMeasurement, SentRun

MIB = 2**20
IN_MEMORY = 4 * MIB
"""Bytes of a body that stay in memory; a longer body is in a temporary file."""
STEP = 256 * 1024
"""Bytes that are decompressed at a time."""
LONGEST_KEY = 200


class SentRunAnswer(Answer):
    """Which run was stored."""

    run: int | None
    """Its number in this database; null if it was deleted there."""
    new: bool
    """Whether it was stored now, and not before."""
    judged: bool
    """Whether it is judged. If not, judging failed: send the run again, and the server judges it then."""
    later_run: int | None
    """A run of the same suite that began later, and is stored already."""


async def post_run(request: Request) -> Response:
    """Store the run in the body, and answer with its number in this database."""
    return await audited(request, Attempt("send a run"), lambda attempt: _post_run(request, attempt))


async def _post_run(request: Request, attempt: Attempt) -> Response:
    who, store = await permitted(request, attempt, WRITE)
    keys = request.headers.getlist("idempotency-key")
    key = keys[0] if keys else ""
    if len(keys) > 1 or len(key) > LONGEST_KEY or not key.isprintable():
        raise RefusedError(400, "the Idempotency-Key is there twice, or is no short text", "send one of a few letters")
    shared = serving(request)
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as spooled:
        body = cast("BinaryIO", spooled)
        digest = await _read_body(request, body)

        def stored() -> ReceivedRun:
            assert who.token is not None  # noqa: S101 - for mypy: only tokens have the scope
            return receive(
                store, body, digest=digest, token=who.token.id, key=key or digest, threshold=shared.threshold
            )

        try:
            received = await asyncio.shield(asyncio.wrap_future(request.app.state.receiver.submit(stored)))
        except ReusedKeyError as error:
            raise RefusedError(409, error.what, error.cure) from error
        except UsageError as error:
            raise RefusedError(422, error.what, error.cure) from error
    facts = {"run": received.run, "new": received.new, "judged": received.judged, "later_run": received.later}
    attempt.target = f"run {received.run}" if received.run else "a run that was deleted"
    return answer(facts, 201 if received.new else 200)


async def _read_body(request: Request, body: BinaryIO) -> str:
    """Write the decompressed body to a file and return its SHA-256; raise ``RefusedError`` if it is refused."""
    settings = serving(request).server
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if kind != NDJSON or coding not in {"gzip", "identity"}:
        raise RefusedError(415, f"the body is not {NDJSON}, plain or compressed with gzip", "send it with perfsvc send")
    digest, size = hashlib.sha256(), 0
    try:
        with anyio.fail_after(settings.upload):
            sent = _limited(request, settings.largest_run_mib * MIB)
            async for part in _decompressed(sent) if coding == "gzip" else sent:
                size += len(part)
                if size > settings.largest_run_unpacked_mib * MIB:
                    raise _too_large(settings.largest_run_unpacked_mib, "server.largest_run_unpacked_mib")
                digest.update(part)
                body.write(part)
    except TimeoutError:
        cure = "send it over a faster connection, or set server.upload of the server"
        raise RefusedError(408, f"the run did not arrive within {settings.upload:g} s", cure) from None
    except ClientDisconnect:
        raise RefusedError(400, "the connection ended before the run had arrived", "send it again") from None
    return digest.hexdigest()


async def _limited(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the parts of a body as they arrive; raise ``RefusedError`` if it has more than ``most`` bytes."""
    size, announced = 0, request.headers.get("content-length", "0")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > most:  # noqa: PLR2004 - digits of 2^63
        raise _too_large(most // MIB, "server.largest_run_mib")
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most // MIB, "server.largest_run_mib")
        yield part


async def _decompressed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body without its compression, ``STEP`` bytes at a time; raise ``RefusedError`` if it is damaged."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    damaged = RefusedError(400, "the body is no whole gzip stream", "send the run again")
    async for part in parts:
        rest = part
        while rest and not stream.eof:
            try:
                plain = stream.decompress(rest, STEP)
            except zlib.error:
                raise damaged from None
            rest = stream.unconsumed_tail
            yield plain
            await anyio.lowlevel.checkpoint()  # other requests go on meanwhile
        if stream.unused_data or (stream.eof and rest):
            raise damaged
    if not stream.eof:
        raise damaged


def _too_large(mib: int, setting: str) -> RefusedError:
    return RefusedError(413, f"the run has more than {mib} MiB", f"raise {setting} of the server, or measure less")


ENDPOINT = Endpoint(
    "runs",
    "send_run",
    "Store and judge a run of another host, as `perfsvc send` writes it.",
    NoParameters,
    SentRunAnswer,
    None,
    method="POST",
    scope=WRITE,
    lines=(SentRun, SentMeasurement),
    status=201,
    respond=post_run,
)
"""The endpoint that receives runs."""
