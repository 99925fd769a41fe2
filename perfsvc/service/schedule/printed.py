"""Files that make a scheduler start a night: a crontab line, systemd units, a Kubernetes CronJob, a script for Slurm.

They are templates in ``templates/``. Each file is valid by the rules of its scheduler, whatever is in the paths:
crontab(5), systemd.syntax(7) and systemd.exec(5), the schema of batch/v1, sbatch(1) and POSIX's shell.

How each scheduler avoids two nights at once, and a missed night: cron starts a night even if the one before still runs,
which then takes no lock, and misses a night if the machine is off. systemd starts no unit that runs, and catches up.
Slurm starts a job as soon as there is room, and runs jobs of one name one after the other.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perfsvc.errors import UsageError
from perfsvc.service.schedule.scheduled_night import LATE_S, NAME, STOP_S, ScheduledNight

FILES: Mapping[str, Mapping[str, str]] = {
    "cron": {f"{NAME}.crontab": "crontab.j2"},
    "systemd": {f"{NAME}.service": "service.j2", f"{NAME}.timer": "timer.j2"},
    "kubernetes": {f"{NAME}.yaml": "cronjob.yaml.j2"},
    "slurm": {f"{NAME}.sh": "slurm.sh.j2"},
}
"""The templates of each scheduler, by the names of the files."""

LONGEST_CRON_LINE = 998
"""Bytes of a line that every cron accepts; Vixie's cron has the shortest buffer."""


def printed(kind: str, night: ScheduledNight, *, image: str = "", claim: str = "") -> dict[str, str]:
    """Return the text of each file that a scheduler needs, by the name of the file.

    Args:
        kind: the scheduler, such as ``cron``; a key of ``FILES``.
        night: what to start.
        image: for Kubernetes, the container image.
        claim: for Kubernetes, the volume claim that holds the folder of perfsvc.toml, the suite, the database and all
            files that nights write.

    Raises:
        UsageError: the crontab line is too long for cron.
    """
    zone = night.zone.key if night.zone else ""
    variables = {
        "night": night,
        "name": NAME,
        "zone": zone,
        "set_zone": f"TZ={shlex.quote(zone)} " if zone else "",
        "environment": {"PATH": night.path, **night.plain}.items(),
        "secrets": f"{night.variables_file.name}, beside perfsvc.toml and readable by you alone (chmod 600), "
        f"has a line NAME='value' each for: {', '.join(night.secret)}",
        "has_dollars": re.search(
            r"[$`]", "".join([str(night.folder), night.path, *night.plain.values(), *night.command])
        ),
        "limit_s": round(night.limit_s),
        "stop_s": STOP_S,
        "late_s": LATE_S,
        "image": image,
        "claim": claim,
    }
    files = {file: _TEMPLATES.get_template(template).render(variables) for file, template in FILES[kind].items()}
    if kind == "cron":
        _require_short_lines(files)
    return files


def _require_short_lines(files: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if a crontab line is longer than cron accepts."""
    longest = max(len(line.encode()) for text in files.values() for line in text.splitlines())
    if longest > LONGEST_CRON_LINE:
        raise UsageError(
            f"the line has {longest} bytes, and cron takes {LONGEST_CRON_LINE} at most",
            cure="print it where PATH is shorter, or let systemd start the nights: --as systemd",
        )


# --- how each scheduler quotes ---------------------------------------------------------------------------------------


def _unit_path(path: Path) -> str:
    """Quote a path for a systemd setting whose value ends with the line; only specifiers are escaped."""
    return str(path).replace("%", "%%")


def _unit_word(text: str) -> str:
    """Quote a word of a systemd line: a program, or a variable with its value."""
    if re.fullmatch(r"[\w@+=:,./-]+", text, re.ASCII):
        return text
    return '"' + text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unit_command(command: Sequence[str]) -> str:
    """Quote a command for systemd; run it through a shell if systemd refuses the name of the program."""
    if re.search(r"[\\\"']", command[0]):
        command = ["/bin/sh", "-c", 'exec "$0" "$@"', *command]
    program, *arguments = map(_unit_word, command)
    return " ".join([program, *(argument.replace("$", "$$") for argument in arguments)])


def _unit_path_in_list(path: Path) -> str:
    """Quote a path for a systemd setting that takes several paths; it may be missing (``-``)."""
    return '"-' + str(path).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unit_glob(text: str) -> str:
    """Escape the wildcards of a path for a systemd setting that takes a pattern."""
    return re.sub(r"([*?\[\\])", r"\\\1", text)


def _slurm_time(seconds: int) -> str:
    """Return a duration as days, hours, minutes, seconds: ``2-03:00:00``."""
    days, rest = divmod(seconds, 86400)
    return f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # noqa: S701 - no HTML
)
_TEMPLATES.filters |= {
    "sh": lambda word: shlex.quote(str(word)),
    "shell_command": shlex.join,
    "json": lambda text: json.dumps(str(text), ensure_ascii=False),
    "unit_path": _unit_path,
    "unit_path_in_list": _unit_path_in_list,
    "unit_word": _unit_word,
    "unit_command": _unit_command,
    "unit_glob": _unit_glob,
    "slurm_time": _slurm_time,
}
