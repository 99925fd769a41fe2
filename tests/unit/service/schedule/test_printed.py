"""The files that `perfsvc schedule print` prints are valid by each scheduler's rules, whatever is in the paths."""

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
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import kubernetes_validate
import pytest
import yaml

from perfsvc.config import load
from perfsvc.errors import UsageError
from perfsvc.service.schedule.printed import FILES, printed
from perfsvc.service.schedule.scheduled_night import ScheduledNight, for_owner, scheduled_night

FOLDERS = ["plain", "with blanks", "100% $HOME $(HOME) [a] *", 'it\'s "quoted" \\ & ; # é']
BERLIN = ZoneInfo("Europe/Berlin")
FIELD = r"\S+"


@pytest.fixture
def nights(tmp_path):
    """Return nights in folders with difficult names. Their programs print where and with what they were started."""
    return [night_in(tmp_path / name) for name in FOLDERS]


@pytest.fixture
def night(tmp_path):
    return night_in(tmp_path / FOLDERS[-1])


def night_in(folder):
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"#!{sys.executable} -IS\nimport json, os, sys\n"
        "print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get('CUDA_HOME'), os.environ.get('SLACK_URL')]))\n"
    )
    python.chmod(0o755)
    (folder / "perfsvc.env").write_text("SLACK_URL='https://a/?b=1&c=$d'\n")
    return ScheduledNight(
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


def is_started_as_intended(night, output):
    """Return whether the program of a night was started with its arguments, folder and variables."""
    folder = str(night.folder)
    return json.loads(output) == [list(night.command[1:]), folder, f"{folder}/cuda", "https://a/?b=1&c=$d"]


# --- cron ------------------------------------------------------------------------------------------------------------


def as_cron_does(text):
    """The commands of a crontab by the rules of crontab(5): a bare percent sign ends a command, ``\\%`` is one."""
    for line in text.splitlines():
        if not line or line.startswith("#") or re.match(r"[A-Z_]+=", line):
            continue
        when, command = re.fullmatch(rf"((?:{FIELD} ){{4}}{FIELD})\s+(.*)", line).groups()
        yield when, re.split(r"(?<!\\)%", command)[0].replace("\\%", "%")


def test_cron_starts_a_night_in_its_folder_with_its_variables(nights):
    for night in nights:
        ((when, command),) = as_cron_does(only(printed("cron", night)))
        assert when == "5 2 * * *"
        subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True, cwd="/")
        assert is_started_as_intended(night, (night.folder / "nightly.log").read_text())


def test_cron_has_the_time_zone_before_the_line_and_ends_a_night_that_takes_too_long(night):
    text = only(printed("cron", replace(night, zone=BERLIN, limit_s=0.0)))
    ((_, command),) = as_cron_does(text)
    assert "timeout --signal=TERM --kill-after=90 0 " in command
    *_, zone, line = text.splitlines()
    assert (zone, line[:11]) == ("CRON_TZ=Europe/Berlin", "5 2 * * *  ")


def test_a_line_that_is_too_long_for_cron_is_refused(night):
    with pytest.raises(UsageError, match="and cron takes 998 at most") as error:
        printed("cron", replace(night, path="/a" * 500))
    assert "--as systemd" in error.value.cure


# --- systemd ---------------------------------------------------------------------------------------------------------

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze here")


def verified(files, folder):
    """Return the result of `systemd-analyze verify` on units."""
    for name, text in files.items():
        (folder / name).write_text(text)
    paths = [str(folder / name) for name in files]
    return subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)


@pytest.mark.slow
@needs_systemd
def test_systemd_accepts_the_service_and_its_timer_and_the_sandbox_of_roots_service(nights, tmp_path):
    for night in nights:
        root = replace(night, zone=BERLIN, user="root", writable=(night.folder.parent / "the cache",))
        for kind in (night, root):
            result = verified(printed("systemd", kind), tmp_path)
            assert (result.returncode, result.stderr, result.stdout) == (0, "", ""), night.folder


def words_of_systemd(line):
    """Return the words of a line by systemd.syntax(7), with specifiers unescaped."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    plain = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in words]
    return [word.replace("%%", "%") for word in plain]


def test_the_systemd_service_starts_a_night_in_its_folder_with_its_variables(nights):
    for night in nights:
        service = printed("systemd", night)["perfsvc-nightly.service"]
        settings = dict(line.split("=", 1) for line in service.splitlines() if "=" in line and line[0] != "#")
        program, *arguments = words_of_systemd(settings["ExecStart"])
        command = [program, *(argument.replace("$$", "$") for argument in arguments)]
        assert command[-6:] == list(night.command)
        assert command[:-6] in ([], ["/bin/sh", "-c", 'exec "$0" "$@"'])
        assert settings["WorkingDirectory"].replace("%%", "%") == str(night.folder)
        assert re.sub(r"\\(.)", r"\1", settings["EnvironmentFile"].replace("%%", "%")) == str(night.variables_file)
        assert words_of_systemd(settings["Environment"]) == [f"CUDA_HOME={night.folder}/cuda"]
        assert subprocess.run(command, env={}, capture_output=True, check=False).returncode == 0
        assert (settings["TimeoutStartSec"], settings["KillMode"]) == ("43200", "mixed")


@needs_systemd
def test_the_service_takes_rights_away(night, tmp_path):
    for user, held in (("root", True), ("me", False)):
        service = tmp_path / "perfsvc-nightly.service"
        service.write_text(printed("systemd", replace(night, user=user))[service.name])
        command = ["systemd-analyze", "security", "--offline=true", "--json=short", str(service)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        state = {row["json_field"]: row["set"] for row in found}
        assert state["NoNewPrivileges"]
        assert state["RestrictSUIDSGID"]
        assert state["ProtectSystem"] is held  # a user's own systemd cannot make file systems read-only everywhere


def test_roots_service_may_write_where_its_nights_write(night):
    writable = (night.folder.parent / "the cache",)
    service = printed("systemd", replace(night, user="root", writable=writable))["perfsvc-nightly.service"]
    lines = [line.removeprefix("ReadWritePaths=") for line in service.splitlines() if line.startswith("ReadWritePaths")]
    written = [word for line in lines for word in words_of_systemd(line)]
    assert written[:2] == [f"-{night.folder}", f"-{writable[0]}"]
    assert written[-1] == "-%h"


@needs_systemd
def test_root_prints_a_service_for_the_user_who_owns_the_folder(night, tmp_path, monkeypatch):
    home = night.folder.parent / "home"
    account = SimpleNamespace(pw_uid=1234, pw_name="nights", pw_dir=str(home))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: account)
    assert for_owner(night) == night  # only root can run nights as another user
    files = printed("systemd", for_owner(replace(night, user="root")))
    service = files["perfsvc-nightly.service"].splitlines()
    assert "User=nights" in service
    assert f'ReadWritePaths="-{home}"' in service
    assert f'InaccessiblePaths="-{home}/.ssh" "-{home}/.gnupg"' in service
    assert "%h" not in files["perfsvc-nightly.service"]  # root's home folder
    result = verified(files, tmp_path)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "")


def test_root_runs_its_own_nights_and_those_of_a_user_without_an_account(night, monkeypatch):
    own = replace(night, user="root")
    for account in (lambda uid: SimpleNamespace(pw_uid=0, pw_name="root", pw_dir="/root"), {}.__getitem__):
        monkeypatch.setattr("pwd.getpwuid", account)
        assert for_owner(own) == own


def test_systemd_catches_up_on_a_missed_night(night):
    timer = printed("systemd", replace(night, zone=BERLIN))["perfsvc-nightly.timer"]
    assert "\nPersistent=true\n" in timer
    assert "\nOnCalendar=*-*-* 02:05:00 Europe/Berlin\n" in timer


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def cron_job(night):
    text = only(printed("kubernetes", night, image="registry/perfsvc:1", claim="nights"))
    return yaml.safe_load(text)


def test_kubernetes_accepts_the_cron_job_and_refuses_a_wrong_one(nights):
    for job in (*map(cron_job, nights), cron_job(replace(nights[0], gpus=0))):
        kubernetes_validate.validate(job, "1.31", strict=True)
    job["spec"]["concurrency"] = "Forbid"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.31", strict=True)


def test_kubernetes_starts_one_night_at_a_time_with_gpus_and_a_time_limit(nights):
    for night in nights:
        spec = cron_job(replace(night, zone=BERLIN))["spec"]
        zone, policy = spec["timeZone"], spec["concurrencyPolicy"]
        assert (spec["schedule"], zone, policy) == ("5 2 * * *", "Europe/Berlin", "Forbid")
        assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 43200
        pod = spec["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["hostname"] == "perfsvc-nightly"  # so that nights can be resumed and pruned
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
        assert [word.replace("$$(", "$(") for word in container["command"][1:]] == list(night.command[1:])
        assert container["workingDir"] == str(night.folder)
        by_name = {variable["name"]: variable for variable in container["env"]}
        assert by_name["SLACK_URL"]["valueFrom"]["secretKeyRef"] == {"name": "perfsvc-nightly", "key": "SLACK_URL"}
        assert pod["terminationGracePeriodSeconds"] > 30
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "nights"}
    assert cron_job(night)["spec"]["timeZone"] == "Etc/UTC"


def test_the_cron_job_says_which_image_and_claim_it_needs(night):
    first, *_ = only(printed("kubernetes", night, image="perfsvc", claim="perfsvc")).splitlines()
    assert first.startswith("# ")
    assert "(--image)" in first
    assert "(--claim)" in first


# --- Slurm -----------------------------------------------------------------------------------------------------------


def shellcheck():
    return shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def test_shellcheck_accepts_the_script(nights, tmp_path):
    scripts = [tmp_path / f"night{place}.sh" for place, _ in enumerate(nights)]
    for script, night, zone in zip(scripts, nights, (None, BERLIN, None, BERLIN), strict=True):
        script.write_text(only(printed("slurm", replace(night, zone=zone))))
    result = subprocess.run([shellcheck(), *scripts], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_slurm_script_submits_the_next_night_and_runs_this_one(nights, tmp_path):
    script = tmp_path / "night.sh"
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text('#!/bin/sh\necho "$TZ" "$@" >"$(dirname "$0")/submitted"\n')
    sbatch.chmod(0o755)
    environment = {"PATH": f"{sbatch.parent}:/usr/bin:/bin"}
    for night in nights:
        script.write_text(only(printed("slurm", replace(night, zone=BERLIN))))
        done = subprocess.run(["bash", str(script)], env=environment, capture_output=True, text=True, check=True)
        assert is_started_as_intended(night, done.stdout)
        assert (sbatch.parent / "submitted").read_text() == f"Europe/Berlin {script}\n"
        (sbatch.parent / "submitted").unlink()


def test_the_slurm_options_give_time_resources_and_limit(night):
    text = only(printed("slurm", night))
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
    assert "gres" not in only(printed("slurm", replace(night, gpus=0)))


# --- the settings ---------------------------------------------------------------------------------

TARGETS = """
[notify.targets]
team = "SLACK_URL"
boss = "MAIL_URL"
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return a function that loads the settings from a text."""
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def load_text(text, name="perfsvc.toml"):
        (tmp_path / name).write_text(text)
        return load(tmp_path / name)

    return load_text


def night_of(loaded, **given):
    defaults = {"at": time(2), "zone": None, "gpus": None, "limit_s": 60.0, "user": "me"}
    return scheduled_night(loaded, **{**defaults, **given})


def test_secret_variables_are_named_without_their_values(settings, monkeypatch):
    monkeypatch.setenv("PERFSVC_DB", "postgresql://me:hushhush@server/nights")
    monkeypatch.setenv("SLACK_URL", "slack://hushhush")
    monkeypatch.setenv("PERFSVC_RUN__REPLICAS", "5")
    night = night_of(settings(TARGETS))
    assert night.secret == ("MAIL_URL", "PERFSVC_DB", "PERFSVC_RUN__REPLICAS", "SLACK_URL")
    texts = [text for kind in FILES for text in printed(kind, night).values()]
    assert len(texts) == 5
    assert not [text for text in texts if "hushhush" in text]
    assert len([text for text in texts if "PERFSVC_RUN__REPLICAS, SLACK_URL" in text]) == 4  # all but the timer


def test_the_variable_of_the_heartbeat_is_secret(settings):
    assert night_of(settings('[nightly]\nheartbeat = "HEARTBEAT_URL"\n')).secret == ("HEARTBEAT_URL",)


def test_no_file_of_variables_is_read_without_secret_variables_and_path_has_each_folder_once(settings, monkeypatch):
    monkeypatch.setenv("PATH", "/opt/cuda/bin:/usr/bin:/opt/cuda/bin:/bin:/usr/bin")
    night = night_of(settings(""))
    assert night.path == "/opt/cuda/bin:/usr/bin:/bin"
    texts = [text for kind in FILES for text in printed(kind, night).values()]
    assert not [text for text in texts if "perfsvc.env" in text]


def test_the_command_names_its_interpreter_and_a_file_with_another_name(settings, tmp_path):
    assert night_of(settings("")).command == (sys.executable, "-P", "-m", "perfsvc", "nightly")
    night = night_of(settings("", "other.toml"))
    assert night.command[1:] == ("-P", "-m", "perfsvc", "--config", str(tmp_path / "other.toml"), "nightly")
    assert night.folder == tmp_path
    assert shlex.split(shlex.join(night.command)) == list(night.command)


def test_the_requested_gpus_are_those_of_the_settings(settings):
    gpus = {'"auto"': 1, '"cpu"': 0, '"cuda"': 1, '"cuda:0,2"': 2, '"cuda:0", "cuda:1", "cuda:0", "cpu"': 2}
    loaded = {devices: settings(f"[run]\ndevices = [{devices}]\n") for devices in gpus}
    assert {devices: night_of(each).gpus for devices, each in loaded.items()} == gpus
    assert {night_of(each, gpus=8).gpus for each in loaded.values()} == {8}


@pytest.mark.parametrize("path", ["/usr\nrm -rf /", "/a\u200bb", "/a\udcffb", "/##[error]a", "/a\\%b", "/a\\", "/a\tb"])
def test_a_path_that_would_be_printed_or_read_as_another_is_refused(settings, monkeypatch, path):
    loaded = settings("")
    monkeypatch.setenv("CUDA_HOME", path)
    with pytest.raises(UsageError, match="holds characters that not every scheduler takes"):
        night_of(loaded)
