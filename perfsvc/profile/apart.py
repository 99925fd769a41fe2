"""Reads a report in a process of its own, ``python -m perfsvc.profile.apart REPORT KERNEL ANSWER``.

NVIDIA's library is native code. Whatever a report, or another build of the library, makes it do to its process: it ends
that process, and no night.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perfsvc.build import process
from perfsvc.errors import MissingPackageError, PerfsvcError, ProfileError, ReportError
from perfsvc.installation import install_command
from perfsvc.model import Profile, codec
from perfsvc.profile import reading

LIMIT_S = 60.0
"""Seconds that reading may take; a report of everything takes less than one."""
KINDS: dict[str, type[PerfsvcError]] = {kind.__name__: kind for kind in (ReportError, MissingPackageError)}
"""The errors of ``reading.read``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process found: a profile, or what kept it from one."""

    profile: Profile | None = None
    kind: str = ""
    what: str = ""
    cure: str = ""


def read(path: Path, *, kernel: str | None = None) -> Profile:
    """A report of one launch as a profile, as ``reading.read`` reads it.

    Raises:
        ReportError: as ``reading.read`` does.
        MissingPackageError: likewise.
        ProfileError: the library ended its process, or did not come to an end.
    """
    reading.require_ncu_report()
    with tempfile.TemporaryDirectory(prefix="perfsvc-report-") as folder:
        file = Path(folder, "answer.json")
        command = [*process.python_module("perfsvc.profile.apart"), str(path), kernel or "", str(file)]
        ended = process.run(command, folder=Path.cwd(), limit_s=LIMIT_S)
        answer = codec.decode(Answer, file.read_bytes()) if file.exists() and not ended.code else None
    if answer is None:
        how = f"did not end within {LIMIT_S:g} s" if ended.timed_out else f"died ({process.describe_exit(ended.code)})"
        raise ProfileError(
            f"the package ncu-report {how} while it read {path.name}",
            cure=f"{install_command('profile')} --upgrade, with no ncu_report of Nsight Compute's own on PYTHONPATH",
        )
    if answer.profile is None:
        raise KINDS[answer.kind](answer.what, cure=answer.cure)
    return answer.profile


def main(path: Path, kernel: str, file: Path) -> None:
    """Reads, and writes the answer."""
    try:
        answer = Answer(reading.read(path, kernel=kernel or None))
    except (ReportError, MissingPackageError) as error:
        answer = Answer(None, type(error).__name__, error.what, error.cure)
    file.write_bytes(codec.encode(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
