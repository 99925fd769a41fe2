"""Nsight Systems: a timeline of a program with our NVTX ranges, for people to look at."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from perfsvc.build import process
from perfsvc.errors import NoProfilerError, ProfileError, TimeLimitError
from perfsvc.profile.finding import find
from perfsvc.profile.profiler import LIMIT_S

SUFFIX = ".nsys-rep"
"""How the names of its reports end."""


def command(nsys: Path, program: Sequence[str], report: Path) -> list[str]:
    """The command line: what CUDA and NVTX say, and no samples of the processor, which need further rights."""
    return [
        str(nsys),
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--stats=false",
        "--force-overwrite=true",
        f"--output={report}",
        *program,
    ]


def run(program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
    """Runs a program and writes its timeline.

    Args:
        program: the full path of an executable, and its arguments.
        report: the file to write; its name ends with ``SUFFIX``.
        environment: the program's environment variables.
        limit_s: seconds after which it is killed.

    Raises:
        NoProfilerError: there is no nsys on this machine.
        ProfileError: it failed.
        TimeLimitError: it ran past its time limit.
    """
    nsys = find("nsys", "nsight-systems")
    if nsys is None:
        raise NoProfilerError(
            "nsys was not found on PATH, beside nvcc, in /usr/local/cuda*/bin or in /opt/nvidia/nsight-systems",
            cure="install Nsight Systems and put nsys on PATH",
        )
    try:
        ended = process.run(command(nsys, program, report), folder=Path.cwd(), limit_s=limit_s, environment=environment)
    except OSError as error:
        raise NoProfilerError(f"{nsys} cannot be run: {error.strerror}", cure="install Nsight Systems anew") from error
    if ended.timed_out:
        raise TimeLimitError(
            f"time limit: Nsight Systems was still running after {limit_s:g} s, so it was killed with the case",
            cure="profile a smaller point",
        )
    if ended.code or not report.is_file():
        said = " ".join(ended.output.split())[-300:]
        raise ProfileError(f"Nsight Systems wrote no timeline: {said or 'it said nothing'}", cure="run nsys status -e")
