"""Asking git."""

import os
import subprocess
from pathlib import Path

LIMIT_S = 30
"""Seconds for an answer; what writes files takes as long as it takes."""
OF_ONE_CHECKOUT = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"})
"""The variables by which git tells its hooks where they are: another folder than the one that is meant here."""


def git(folder: Path, *arguments: str, typed: str | None = None) -> str | None:
    """What a git command prints, stripped; None where it fails or there is no git. ``typed`` is its standard input."""
    try:
        done = run(folder, *arguments, typed=typed, limit_s=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def run(
    folder: Path, *arguments: str, typed: str | None = None, limit_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a git command in a folder, and none of the hooks of its repository: they are meant for a person's commands.

    Raises:
        OSError: there is no git.
        TimeoutExpired: it took longer than the limit.
    """
    return subprocess.run(
        ["git", "-C", str(folder), "-c", f"core.hooksPath={os.devnull}", *arguments],
        env={name: value for name, value in os.environ.items() if name not in OF_ONE_CHECKOUT},
        input=typed,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=limit_s,
        check=False,
    )
