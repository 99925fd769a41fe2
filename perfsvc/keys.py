"""The keys of a user: the store signs everything that runs code later, and runs only what a trusted key has signed.

A signature is an HMAC-SHA256 of a text under a secret of 32 random bytes. Hosts that trust each other hold one secret.
The secrets are in a file that only its owner may change and no other user may read, a line each. The first secret
signs; every secret in the file is trusted. The file is made when the first text is signed.

Signed are replay records, what Python functions ran with, and the settings of nights. The first two name all other
code (modules, benchmark files, Python modules) by its SHA-256, so one signature covers the code as well.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import platformdirs

from perfsvc import files
from perfsvc.errors import InfrastructureError, UntrustedError, UsageError

VARIABLE = "PERFSVC_KEYS"
"""The environment variable that names another file for the keys."""
SECRET_BYTES = 32
FINGERPRINT_LENGTH = 12
SHARED = stat.S_IRWXO | stat.S_IWGRP
"""The permissions that the file of the keys must not have."""

_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")
_SIGNATURE = re.compile(rf"([0-9a-f]{{{FINGERPRINT_LENGTH}}}):([0-9a-f]{{64}})")


class Signed(StrEnum):
    """What is signed; a signature of one kind is none of another kind."""

    RECORD = "replay record"
    PYTHON = "python code"
    NIGHT = "settings of a night"


def default_file() -> Path:
    """Return the file that ``PERFSVC_KEYS`` names, else the file in the user's data folder.

    Raises:
        InfrastructureError: this user has no home folder.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    try:
        folder = platformdirs.user_data_path("perfsvc")
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # without a home folder, older versions of platformdirs return ~/…
        raise InfrastructureError(
            "there is no place for your keys: this user has no home folder",
            cure=f"set {VARIABLE} to a file that only you can read",
        )
    return folder / "keys"


def fingerprint(secret: bytes) -> str:
    """Return the name of a key, from which its secret cannot be computed."""
    return hashlib.sha256(b"perfsvc key\0" + secret).hexdigest()[:FINGERPRINT_LENGTH]


class Keys:
    """The keys of this user; the file is read when a key is needed first.

    Args:
        file: by default ``default_file()``.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    @cached_property
    def file(self) -> Path:
        """The file that holds the keys; it may be missing."""
        return self._file or default_file()

    @cached_property
    def secrets(self) -> tuple[bytes, ...]:
        """The trusted secrets; the first one signs. Empty if there is no file yet.

        Raises:
            InfrastructureError: the file cannot be read, is damaged, or other users may read or change it.
        """
        return _read(self.file)

    def signing(self) -> bytes:
        """Return the secret that signs; make a secret if this user has none."""
        if not self.secrets:
            with contextlib.suppress(FileExistsError):  # another process has made the file meanwhile
                _write(self.file, [secrets.token_bytes(SECRET_BYTES)], replace=False)
            del self.secrets
        return self.secrets[0]

    def derived(self, purpose: str) -> bytes:
        """Return a secret for another purpose, from which the signing key cannot be computed; shape (32 bytes)."""
        return hmac.digest(self.signing(), f"perfsvc derived\0{purpose}".encode(), "sha256")

    def add(self, text: str) -> str:
        """Trust a secret (64 hexadecimal digits) and sign with it from now on; return its fingerprint.

        Raises:
            UsageError: the text is no secret.
        """
        if not _SECRET.fullmatch(text.strip()):
            raise UsageError(
                "that is no key: a key is 64 hexadecimal digits",
                cure="perfsvc key show prints a key on the other host, and openssl rand -hex 32 makes a new key",
            )
        secret = bytes.fromhex(text.strip())
        self._replace((secret, *(old for old in self.secrets if old != secret)))
        return fingerprint(secret)

    def remove(self, name: str) -> None:
        """Stop trusting the key with this fingerprint; raise ``UsageError`` if there is no such key."""
        kept = tuple(secret for secret in self.secrets if fingerprint(secret) != name)
        if len(kept) == len(self.secrets):
            raise UsageError(f"you have no key {name!r}", cure="perfsvc key list shows your keys")
        if kept:
            self._replace(kept)
        else:  # the next run makes a key
            self.file.unlink()
            del self.secrets

    def sign(self, kind: Signed, text: str, signatures: str = "") -> str:
        """Sign a text with this user's first key; return the text's signatures by other keys and the new signature."""
        secret = self.signing()
        own = fingerprint(secret)
        others = [f"{name}:{code}" for name, code in _SIGNATURE.findall(signatures) if name != own]
        return " ".join([*others, f"{own}:{_code(secret, kind, text)}"])

    def has_signed(self, kind: Signed, text: str, signatures: str) -> bool:
        """Return whether this user's first key has signed a text."""
        return _has(self.signing(), kind, text, signatures)

    def trusts(self, kind: Signed, text: str, signatures: str) -> bool:
        """Return whether a trusted key has signed a text."""
        return any(_has(secret, kind, text, signatures) for secret in self.secrets)

    def require(self, kind: Signed, text: str, signatures: str, name: str) -> None:
        """Raise ``UntrustedError`` unless a trusted key has signed a text; ``name`` names the text."""
        if self.trusts(kind, text, signatures):
            return
        signers = [signer for signer, _ in _SIGNATURE.findall(signatures)]
        known = {fingerprint(secret) for secret in self.secrets}
        if known & set(signers):
            raise UntrustedError(f"{name} was changed in the database after it was stored", cure=CHANGED)
        by = (
            f"is signed by the key {' and the key '.join(signers)}, which you do not trust"
            if signers
            else "is not signed"
        )
        raise UntrustedError(f"{name} {by}", cure=UNKNOWN)

    def _replace(self, kept: Sequence[bytes]) -> None:
        """Replace the secrets in the file by ``kept``."""
        _write(self.file, kept, replace=True)
        del self.secrets


UNKNOWN = (
    "measure its commit again here with perfsvc run, or trust the key of the host that stored it: "
    "ssh HOST perfsvc key show | perfsvc key add (docs/security.md)"
)
CHANGED = "find out who writes to the database, restore a backup, or measure again (docs/security.md)"


def _code(secret: bytes, kind: Signed, text: str) -> str:
    content = f"perfsvc {kind}\0{text}".encode(errors="surrogatepass")
    return hmac.digest(secret, content, "sha256").hex()


def _has(secret: bytes, kind: Signed, text: str, signatures: str) -> bool:
    """Return whether one of the signatures is by this secret; forged signatures beside it do not matter."""
    name, code = fingerprint(secret), _code(secret, kind, text)
    return any(signer == name and hmac.compare_digest(by, code) for signer, by in _SIGNATURE.findall(signatures))


# --- the file --------------------------------------------------------------------------------------------------------


def _read(file: Path) -> tuple[bytes, ...]:
    """Return the secrets in a file; none if it is missing.

    Raises ``InfrastructureError`` if the file cannot be read, is damaged, or may be read or changed by other users.
    """
    try:
        with file.open("rb") as opened:
            _require_private(file, os.fstat(opened.fileno()))
            lines = [line for line in opened.read().decode("ascii", "replace").splitlines() if line.strip()]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise _unusable(file, f"cannot be read: {error.strerror}") from error
    if not all(_SECRET.fullmatch(line.strip()) for line in lines):
        cure = "restore the file, or move it away: then your next run makes another key"
        raise InfrastructureError(f"the keys in {file} are damaged", cure=cure)
    return tuple(dict.fromkeys(bytes.fromhex(line.strip()) for line in lines))


def _require_private(file: Path, state: os.stat_result) -> None:
    """Raise ``InfrastructureError`` if another user owns an open file of keys, or may read or change it."""
    if state.st_uid not in {os.getuid(), 0}:
        raise InfrastructureError(
            f"the keys in {file} belong to another user", cure=f"set {VARIABLE} to a file of your own"
        )
    if state.st_mode & SHARED:
        raise InfrastructureError(
            f"other users may read or change the keys in {file}",
            cure=f"chmod 600 {file}; if another user has read them, remove them: perfsvc key remove",
        )


def _write(file: Path, kept: Sequence[bytes], *, replace: bool) -> None:
    """Write secrets to the file; raise ``FileExistsError`` if there is a file that must not be replaced."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(file, "".join(f"{secret.hex()}\n" for secret in kept), mode=0o600, replace=replace, sync=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable(file, f"cannot be written: {error.strerror}") from error


def _unusable(file: Path, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"the file {file} with your keys {why}", cure=f"set {VARIABLE} to a file that only you can read and write"
    )
