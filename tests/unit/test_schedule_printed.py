"""What `perfsvc schedule print` prints is valid by each scheduler's own rules, whatever is in the paths."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import time
from pathlib import Path
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml

from perfsvc.config import load
from perfsvc.errors import UsageError
from perfsvc.service.scheduling import printed
from perfsvc.service.scheduling.job import Job, job_of

FOLDERS = ["plain", "with blanks", "100% $HOME $(HOME) [a] *", 'it\'s "quoted" \\ & ; # é']
BERLIN = ZoneInfo("Europe/Berlin")
FIELD = r"\S+"


@pytest.fixture(params=FOLDERS)
def job(request, tmp_path):
    """A job in a folder whose name is anything, for a program that tells where and with what it was started."""
    folder = tmp_path / request.param
    folder.mkdir()
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get('CUDA_HOME'), os.environ.get('SLACK_URL')]))\n"
    )
    python.chmod(0o755)
    (folder / "perfsvc.env").write_text("SLACK_URL='https://a/?b=1&c=$d'\n")
    return Job(
        at=time(2, 5),
        zone=None,
        command=(str(python), "-m", "perfsvc", "--config", str(folder / "own.toml"), "nightly"),
        folder=folder,
        path=f"{os.defpath}:{folder}",
        plain={"CUDA_HOME": str(folder / "cuda")},
        secret=("SLACK_URL",),
        gpus=2,
        limit_s=43200.0,
        user="me",
    )


def only(files):
    (text,) = files.values()
    return text


def told(job, output):
    """Whether a night was started as it is to be."""
    arguments, folder, cuda, secret = json.loads(output)
    return (arguments, folder, cuda, secret) == (
        list(job.command[1:]),
        str(job.folder),
        str(job.folder / "cuda"),
        "https://a/?b=1&c=$d",
    )


# --- cron ------------------------------------------------------------------------------------------------------------


def as_cron_does(text):
    """The commands of a crontab by the rules of crontab(5): a bare percent sign ends a command, ``\\%`` is one."""
    for line in text.splitlines():
        if not line or line.startswith("#") or re.match(r"[A-Z_]+=", line):
            continue
        when, command = re.fullmatch(rf"((?:{FIELD} ){{4}}{FIELD})\s+(.*)", line).groups()
        yield when, re.split(r"(?<!\\)%", command)[0].replace("\\%", "%")


def test_cron_starts_a_night_where_and_with_what_it_is_to_be(job):
    ((when, command),) = as_cron_does(only(printed.cron(job)))
    assert when == "5 2 * * *"
    subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True, cwd="/")
    assert told(job, (job.folder / "nightly.log").read_text())


def test_cron_ends_a_night_that_takes_too_long(job):
    ((_, command),) = as_cron_does(only(printed.cron(replace(job, limit_s=0.0))))
    assert "timeout --signal=TERM --kill-after=90 0 " in command


def test_crons_time_zone_is_a_setting_before_the_line(job):
    lines = only(printed.cron(replace(job, zone=BERLIN))).splitlines()
    assert lines[-2] == "CRON_TZ=Europe/Berlin"
    assert lines[-1].startswith("5 2 * * *  ")


def test_a_line_that_cron_would_cut_short_is_refused(job):
    with pytest.raises(UsageError, match="and cron takes 998 at most") as error:
        printed.cron(replace(job, path="/a" * 500))
    assert "--as systemd" in error.value.cure


# --- systemd ---------------------------------------------------------------------------------------------------------

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")


def verified(files, folder):
    """What systemd says of units."""
    for name, text in files.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in files]
    return subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)


@needs_systemd
@pytest.mark.parametrize("zone", [None, BERLIN])
def test_systemd_takes_the_service_and_its_timer(job, zone, tmp_path):
    found = verified(printed.systemd(replace(job, zone=zone)), tmp_path)
    assert (found.returncode, found.stderr, found.stdout) == (0, "", "")


@needs_systemd
def test_systemd_would_tell(job, tmp_path):
    files = printed.systemd(replace(job, command=("/not/there", *job.command[1:])))
    files = {name: text.replace("02:05:00", "26:05:00") for name, text in files.items()}
    assert "not executable" in verified(files, tmp_path).stderr
    assert "26:05:00" in verified(files, tmp_path).stderr


def words_of_systemd(line):
    """The words of a line by systemd.syntax(7), specifiers and variables put back."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    plain = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in words]
    return [word.replace("%%", "%") for word in plain]


def test_systemds_service_starts_a_night_where_and_with_what_it_is_to_be(job):
    service = printed.systemd(job)["perfsvc-nightly.service"]
    settings = dict(line.split("=", 1) for line in service.splitlines() if "=" in line and not line.startswith("#"))
    program, *arguments = words_of_systemd(settings["ExecStart"])
    command = [program, *(one.replace("$$", "$") for one in arguments)]
    assert command[-6:] == list(job.command)
    assert command[:-6] in ([], ["/bin/sh", "-c", 'exec "$0" "$@"'])
    assert settings["WorkingDirectory"].replace("%%", "%") == str(job.folder)
    assert re.sub(r"\\(.)", r"\1", settings["EnvironmentFile"].replace("%%", "%")) == str(job.variables)
    assert words_of_systemd(settings["Environment"]) == [f"CUDA_HOME={job.folder}/cuda"]
    assert subprocess.run(command, env={}, capture_output=True, check=False).returncode == 0
    assert (settings["TimeoutStartSec"], settings["KillMode"]) == ("43200", "mixed")


def test_systemd_catches_up_on_what_the_machine_missed(job):
    timer = printed.systemd(replace(job, zone=BERLIN))["perfsvc-nightly.timer"]
    assert "\nPersistent=true\n" in timer
    assert "\nOnCalendar=*-*-* 02:05:00 Europe/Berlin\n" in timer


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def cron_job(job):
    text = only(printed.kubernetes(job, image="registry/perfsvc:1", claim="nights"))
    return yaml.safe_load(text)


@pytest.mark.parametrize("gpus", [0, 2])
def test_kubernetes_takes_the_cron_job(job, gpus):
    kubernetes_validate.validate(cron_job(replace(job, gpus=gpus)), "1.31", strict=True)


def test_kubernetes_would_tell(job):
    wrong = cron_job(job)
    wrong["spec"]["concurrency"] = "Forbid"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


def test_kubernetes_starts_a_night_with_gpus_alone_in_time_and_ends_it(job):
    spec = cron_job(replace(job, zone=BERLIN))["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("5 2 * * *", "Europe/Berlin", "Forbid")
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 43200
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert [one.replace("$$(", "$(") for one in container["command"][1:]] == list(job.command[1:])
    assert container["workingDir"] == str(job.folder)
    by_name = {one["name"]: one for one in container["env"]}
    assert by_name["SLACK_URL"]["valueFrom"]["secretKeyRef"] == {"name": "perfsvc-nightly", "key": "SLACK_URL"}
    assert pod["terminationGracePeriodSeconds"] > 30
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "nights"}


def test_kubernetes_has_one_host_for_all_nights_so_that_they_can_be_gone_on_with_and_pruned(job):
    pod = cron_job(job)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["hostname"] == "perfsvc-nightly"


def test_kubernetes_is_told_what_it_takes_for_granted(job):
    first, *_ = only(printed.kubernetes(job, image="perfsvc", claim="perfsvc")).splitlines()
    assert first.startswith("# ")
    assert "(--image)" in first
    assert "(--claim)" in first


def test_kubernetes_goes_by_utc_where_nobody_names_a_zone(job):
    assert cron_job(job)["spec"]["timeZone"] == "Etc/UTC"


# --- Slurm -----------------------------------------------------------------------------------------------------------


def shellcheck():
    return shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("zone", [None, BERLIN])
def test_shellcheck_finds_nothing_in_the_script(job, zone, tmp_path):
    script = tmp_path / "night.sh"
    script.write_text(only(printed.slurm(replace(job, zone=zone))))
    found = subprocess.run([shellcheck(), str(script)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_slurms_script_hands_in_the_next_night_and_holds_this_one(job, tmp_path):
    script = tmp_path / "night.sh"
    script.write_text(only(printed.slurm(replace(job, zone=BERLIN))))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text('#!/bin/sh\necho "$TZ" "$@" >"$(dirname "$0")/handed-in"\n')
    sbatch.chmod(0o755)
    environment = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=True)
    assert told(job, done.stdout)
    assert (sbatch.parent / "handed-in").read_text() == f"Europe/Berlin {script}\n"


def test_slurm_is_told_when_with_what_and_for_how_long(job):
    text = only(printed.slurm(job))
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert options == {
        "job-name": "perfsvc-nightly",
        "begin": "02:05",
        "dependency": "singleton",
        "gres": "gpu:2",
        "time": "0-12:00:00",
        "signal": "B:TERM@90",
        "no-requeue": "",
        "output": "perfsvc-nightly-%j.log",
    }
    assert "gres" not in only(printed.slurm(replace(job, gpus=0)))


# --- what is printed of the settings ---------------------------------------------------------------------------------

TARGETS = """
[notify.targets]
team = "SLACK_URL"
boss = "MAIL_URL"
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """What is in force in a folder of that file."""
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def of(text, name="perfsvc.toml"):
        (tmp_path / name).write_text(text)
        return load(tmp_path / name)

    return of


def made(loaded, **given):
    known = {"at": time(2), "zone": None, "gpus": None, "limit_s": 60.0, "user": "me"}
    return job_of(loaded, **{**known, **given})


def test_variables_that_the_settings_need_are_named_and_their_values_are_nowhere(settings, monkeypatch):
    monkeypatch.setenv("PERFSVC_DB", "postgresql://me:hushhush@server/nights")
    monkeypatch.setenv("SLACK_URL", "slack://hushhush")
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "5")
    job = made(settings(TARGETS))
    assert job.secret == ("MAIL_URL", "PERFSVC_DB", "PERFSVC_RUN__REPLICAS", "SLACK_URL")
    texts = [text for files in (kind(job) for kind in printed.KINDS.values()) for text in files.values()]
    texts += printed.kubernetes(job, image="perfsvc", claim="perfsvc").values()
    assert len(texts) == 5
    assert not [text for text in texts if "hushhush" in text]
    assert len([text for text in texts if "PERFSVC_RUN__REPLICAS, SLACK_URL" in text]) == 4  # all but the timer


def test_no_file_of_variables_is_asked_for_where_none_is_needed(settings):
    job = made(settings(""))
    texts = [text for files in (kind(job) for kind in printed.KINDS.values()) for text in files.values()]
    assert not [text for text in texts if "perfsvc.env" in text]


def test_a_folder_that_is_twice_on_path_is_printed_once(settings, monkeypatch):
    monkeypatch.setenv("PATH", "/opt/cuda/bin:/usr/bin:/opt/cuda/bin:/bin:/usr/bin")
    assert made(settings("")).path == "/opt/cuda/bin:/usr/bin:/bin"


def test_a_job_names_its_interpreter_folder_and_file(settings, tmp_path):
    assert made(settings("")).command == (sys.executable, "-m", "perfsvc", "nightly")
    job = made(settings("", "other.toml"))
    assert job.command == (sys.executable, "-m", "perfsvc", "--config", str(tmp_path / "other.toml"), "nightly")
    assert job.folder == tmp_path
    assert shlex.split(shlex.join(job.command)) == list(job.command)


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        ('["auto"]', 1),
        ('["cpu"]', 0),
        ('["cuda"]', 1),
        ('["cuda:0,2"]', 2),
        ('["cuda:0", "cuda:1", "cuda:0", "cpu"]', 2),
    ],
)
def test_as_many_gpus_are_asked_for_as_the_settings_name(settings, devices, gpus):
    loaded = settings(f"[run]\ndevices = {devices}\n")
    assert made(loaded).gpus == gpus
    assert made(loaded, gpus=8).gpus == 8


def test_a_path_with_a_line_break_is_refused(settings, monkeypatch):
    loaded = settings("")
    monkeypatch.setenv("CUDA_HOME", "/usr\nrm -rf /")
    with pytest.raises(UsageError, match="line break"):
        made(loaded)
