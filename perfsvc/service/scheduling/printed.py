"""What makes a scheduler start a night: a crontab's line, systemd's units, Kubernetes' CronJob, a script for Slurm.

Each is valid by the scheduler's own rules, whatever is in the paths: crontab(5), systemd.syntax(7) and systemd.exec(5),
the schema of batch/v1, sbatch(1) and POSIX's shell.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from perfsvc.errors import UsageError
from perfsvc.service.scheduling.job import LATE_S, NAME, STOP_S, Job

Files = Mapping[str, str]
"""Texts by the names of the files that they are for."""


CRON_MOST = 998
"""Bytes of a line that every cron takes; Vixie's buffer is the shortest."""
CRON_ZONE = (
    "# cronie goes by CRON_TZ; other crons, as Debian's, go by the machine's own clock, whatever it says.",
    "# It holds for the lines below as well.",
)


def cron(job: Job) -> Files:
    """A line for ``crontab -e``.

    cron starts a night whatever the one before does, and misses it while the machine is off; the first is what the
    night's own lock is for, the second takes one of the others.
    """
    inner = f"cd {_sh(job.folder)} && {_variables(job)}{_limited(job)} >>nightly.log 2>&1"
    notes = [f"# {line}" for line in _secrets(job)]
    zone = [*CRON_ZONE, f"CRON_TZ={job.zone.key}"] if job.zone else []
    line = f"{job.at.minute} {job.at.hour} * * *  {_percent(inner)}"
    if len(line.encode()) > CRON_MOST:
        raise UsageError(
            f"the line has {len(line.encode())} bytes, and cron takes {CRON_MOST} at most",
            cure="print it where PATH is shorter, or let systemd start the nights: --as systemd",
        )
    return {f"{NAME}.crontab": _text([*notes, *zone, line])}


def systemd(job: Job) -> Files:
    """A service and its timer. systemd starts no unit that runs already, and catches up on what the machine missed."""
    environment = {"PATH": job.path, **job.plain}
    service = [
        "[Unit]",
        "Description=A night of perfsvc",
        *(["Wants=network-online.target", "After=network-online.target"] if job.user == "root" else []),
        "",
        "[Service]",
        "Type=oneshot",
        f"WorkingDirectory={_unit_path(str(job.folder))}",
        *(f"Environment={_unit_word(f'{name}={value}')}" for name, value in environment.items()),
        *(f"# {line}" for line in _secrets(job)),
        *([f"EnvironmentFile={_glob(_unit_path(str(job.variables)))}"] if job.secret else []),
        f"ExecStart={_unit_command(job.command)}",
        "# 1, 3 and 4 tell of kernels, as the night's message does; what fails the unit kept the night from its work.",
        "SuccessExitStatus=1 3 4",
        f"TimeoutStartSec={job.limit_s:.0f}",
        "# The case in hand is finished and committed first.",
        f"TimeoutStopSec={STOP_S}",
        "KillMode=mixed",
    ]
    zone = f" {job.zone.key}" if job.zone else ""
    timer = [
        "[Unit]",
        "Description=The nights of perfsvc",
        "",
        "[Timer]",
        f"OnCalendar=*-*-* {job.at:%H:%M:%S}{zone}",
        "Persistent=true",
        "AccuracySec=1s",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return {f"{NAME}.service": _text(service), f"{NAME}.timer": _text(timer)}


def kubernetes(job: Job, *, image: str, claim: str) -> Files:
    """A CronJob. The folder of perfsvc.toml is a volume, with the suite, the database and all that nights write.

    Every night's pod has the same host name. By its own each would be a host that had one night: none that goes on with
    what was stopped, and the last of its host, whose samples are never pruned.
    """
    resources = {"resources": {"limits": {"nvidia.com/gpu": job.gpus}}} if job.gpus else {}
    secret = [{"name": name, "valueFrom": {"secretKeyRef": {"name": NAME, "key": name}}} for name in job.secret]
    cache = {"name": "PERFSVC_CACHE", "value": str(job.folder / ".cache")}
    container = {
        "name": NAME,
        "image": image,
        "command": ["python3", *(_literal(word) for word in job.command[1:])],
        "workingDir": str(job.folder),
        "env": [cache, *secret],
        "volumeMounts": [{"name": "perfsvc", "mountPath": str(job.folder)}],
        **resources,
    }
    pod = {
        "hostname": NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_S,
        "containers": [container],
        "volumes": [{"name": "perfsvc", "persistentVolumeClaim": {"claimName": claim}}],
    }
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": NAME},
        "spec": {
            "schedule": f"{job.at.minute} {job.at.hour} * * *",
            "timeZone": job.zone.key if job.zone else "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": LATE_S,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": round(job.limit_s),
                    "template": {"spec": pod},
                }
            },
        },
    }
    yours = "It takes for granted an image that has perfsvc (--image), and a volume claim for the folder (--claim)"
    notes = [f"# {line}" for line in (yours, *_secrets(job, where=f"The Secret {NAME}"))]
    return {f"{NAME}.yaml": _text([*notes, *_yaml(cron_job)])}


def slurm(job: Job) -> Files:
    """A batch script that hands itself in for the next night before it begins this one's.

    Slurm begins what it has when there is room, so nothing is missed; jobs of one name run one after the other.
    """
    zone = f"TZ={_sh(job.zone.key)} " if job.zone else ""
    script = [
        "#!/bin/bash",
        *(["# shellcheck disable=SC2016 # the dollar signs below are parts of names"] if _dollars(job) else []),
        f"#SBATCH --job-name={NAME}",
        f"#SBATCH --begin={job.at:%H:%M}",
        "#SBATCH --dependency=singleton",
        *([f"#SBATCH --gres=gpu:{job.gpus}"] if job.gpus else []),
        f"#SBATCH --time={_slurm_time(job.limit_s)}",
        f"#SBATCH --signal=B:TERM@{STOP_S}",
        "#SBATCH --no-requeue",
        f"#SBATCH --output={NAME}-%j.log",
        "#",
        f"# {zone}sbatch {NAME}.sh hands in the first night. What your cluster asks for, as --partition and --account,",
        "# goes here, as further #SBATCH lines.",
        *(f"# {line}" for line in _secrets(job)),
        "",
        f"cd {_sh(job.folder)} || exit 5",
        f'{zone}sbatch "$0"',
        *(
            ["set -a", "# shellcheck source=/dev/null", f". ./{job.variables.name} || exit 5", "set +a"]
            if job.secret
            else []
        ),
        *(f"export {name}={_sh(value)}" for name, value in {"PATH": job.path, **job.plain}.items()),
        "# It takes the shell's place, for Slurm signals that one.",
        f"exec {shlex.join(job.command)}",
    ]
    return {f"{NAME}.sh": _text(script)}


KINDS: Mapping[str, Callable[[Job], Files]] = MappingProxyType({"cron": cron, "systemd": systemd, "slurm": slurm})
"""Those that need nothing but the job."""


def _text(lines: list[str]) -> str:
    return "\n".join([*lines, ""])


def _sh(text: object) -> str:
    """A word of a POSIX shell."""
    return shlex.quote(str(text))


def _percent(command: str) -> str:
    """A command as cron takes it: a bare percent sign would end it."""
    return command.replace("%", "\\%")


def _variables(job: Job) -> str:
    """What has the variables of a job set in a shell."""
    plain = "".join(f"{name}={_sh(value)} " for name, value in {"PATH": job.path, **job.plain}.items())
    read = f"set -a && . ./{job.variables.name} && set +a && " if job.secret else ""
    return f"{read}export {plain.strip()} && "


def _limited(job: Job) -> str:
    """The command, told to end in time and ended when it does not."""
    return f"timeout --signal=TERM --kill-after={STOP_S} {job.limit_s:.0f} {shlex.join(job.command)}"


def _secrets(job: Job, *, where: str = "") -> list[str]:
    """What to say of the variables whose values are not printed."""
    if not job.secret:
        return []
    place = where or f"{job.variables.name}, beside perfsvc.toml and readable by you alone (chmod 600),"
    line = "has a key each" if where else "has a line NAME='value' each"
    return [f"{place} {line} for: {', '.join(job.secret)}"]


def _unit_command(command: Sequence[str]) -> str:
    """A command as systemd starts it, by a shell where it takes no program of such a name."""
    if re.search(r"[\\\"']", command[0]):
        command = ["/bin/sh", "-c", 'exec "$0" "$@"', *command]
    program, *arguments = command
    return " ".join([_unit_word(program), *map(_unit_argument, arguments)])


def _unit_path(text: str) -> str:
    """A path as systemd's settings take one: to its line's end, quotes and all, but for its specifiers."""
    return text.replace("%", "%%")


def _unit_word(text: str) -> str:
    """A word of a line of systemd's: the name of a program, or a variable with its value."""
    if re.fullmatch(r"[\w@+=:,./-]+", text, re.ASCII):
        return text
    return '"' + _unit_path(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unit_argument(text: str) -> str:
    """An argument of a command of systemd's, which would put variables in the place of their names."""
    return _unit_word(text).replace("$", "$$")


def _glob(text: str) -> str:
    """A path where systemd takes a pattern."""
    return "".join(f"\\{one}" if one in "*?[\\" else one for one in text)


def _literal(text: str) -> str:
    """An argument in Kubernetes, which would put variables in the place of ``$(NAME)``."""
    return text.replace("$(", "$$(")


def _dollars(job: Job) -> bool:
    """Whether anything that a script quotes looks as if a shell were to put something in its place."""
    return bool(set("$`") & set("".join([str(job.folder), job.path, *job.plain.values(), *job.command])))


def _slurm_time(seconds: float) -> str:
    """``2-03:00:00``: days, hours, minutes, seconds."""
    days, left = divmod(round(seconds), 86400)
    hours, left = divmod(left, 3600)
    return f"{days}-{hours:02}:{left // 60:02}:{left % 60:02}"


def _yaml(value: object, indent: str = "") -> list[str]:
    """Mappings and lists as YAML's blocks; scalars as JSON has them, which is YAML as well."""
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            nested = isinstance(item, dict | list) and item
            lines += [f"{indent}{key}:", *_yaml(item, f"{indent}  ")] if nested else [f"{indent}{key}: {_scalar(item)}"]
        return lines
    if isinstance(value, list):
        lines = []
        for item in value:
            first, *others = _yaml(item, f"{indent}  ")
            lines += [f"{indent}- {first.strip()}", *others]
        return lines
    return [f"{indent}{_scalar(value)}"]


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
