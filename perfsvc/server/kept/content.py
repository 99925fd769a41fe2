"""The body of an answer, ready for all readers: compressed, and with its tag."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

SMALLEST_TO_COMPRESS = 1000
LEVEL = 6
"""How hard gzip tries: the default of nginx and zlib."""


@dataclass(frozen=True)
class Content:
    """The body of an answer with its media type."""

    body: bytes
    kind: str

    @cached_property
    def packed(self) -> bytes:
        """The body, compressed with gzip; empty if it is too short for that."""
        return gzip.compress(self.body, LEVEL, mtime=0) if len(self.body) >= SMALLEST_TO_COMPRESS else b""

    @cached_property
    def tag(self) -> str:
        """The ETag: a digest of the body. It is weak, because compressing changes the bytes."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @property
    def size(self) -> int:
        """The bytes that the content takes in memory."""
        return len(self.body) + len(self.packed)

    def answer(self, request: Request) -> Response:
        """Return the content, or only "not modified" if the browser has it."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        accepted = _accepts_gzip(request.headers.get("accept-encoding", ""))
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if known & {self.tag.removeprefix("W/"), "*"}:
            return Response(status_code=304, headers=headers | {"Vary": "Accept-Encoding"})
        if self.packed and accepted:
            headers |= {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}
            return Response(self.packed, headers=headers, media_type=self.kind)
        return Response(self.body, headers=headers, media_type=self.kind)  # the middleware adds Vary


def _accepts_gzip(accepted: str) -> bool:
    """Return whether the header Accept-Encoding allows gzip; a weight of 0 forbids it."""
    for each in accepted.lower().replace(" ", "").split(","):
        coding, _, weight = each.partition(";q=")
        if coding in {"gzip", "*"}:
            return weight.strip("0.") != "" or not weight
    return False
