"""What every profiler promises (perfsvc/profile/profiler.py), asked of each: Nsight Compute's by a stand-in."""

import json
import lzma
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from perfsvc.errors import CountersError, NoProfilerError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.profile.commands import NcuProfiler
from perfsvc.profile.fake import FakeProfiler, ProfilerScript
from perfsvc.profile.metrics import SECTIONS

DATA = Path(__file__).parents[1] / "data"
REPORT = DATA / "ncu" / "transpose-padded-small.ncu-rep.xz"
KERNEL = "transpose_pad"
PROGRAM = [sys.executable, "-c", "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('ran')"]
FAILURES = {
    "permission": CountersError,
    "held": CountersError,
    "old": NoProfilerError,
    "hang": TimeLimitError,
    "nothing": ProfileError,
}
ON_THE_STAND_IN = {"old": "old_option"}


class Ncu:
    """Nsight Compute's profiler with the stand-in on PATH."""

    def __init__(self, monkeypatch, folder):
        self._monkeypatch, self._folder = monkeypatch, folder
        monkeypatch.setenv("PATH", f"{DATA / 'ncu_stand_in'}:{os.environ['PATH']}")
        report = folder / "stored"
        report.write_bytes(lzma.decompress(REPORT.read_bytes()))
        monkeypatch.setenv("NCU_STAND_IN_REPORT", str(report))
        monkeypatch.setenv("NCU_STAND_IN_CHILD", str(folder / "child"))

    def profiler(self, fault=None, sections="basic"):
        if fault:
            self._monkeypatch.setenv("NCU_STAND_IN", ON_THE_STAND_IN.get(fault, fault))
        return NcuProfiler(sections)


class Fake:
    """The fake device's profiler."""

    def __init__(self, monkeypatch, folder):
        pass

    def profiler(self, fault=None):
        return FakeProfiler(ProfilerScript(metrics={"*": {"duration_s": 1e-4, "registers": None}}, fault=fault))


@pytest.fixture(params=[Ncu, Fake])
def kind(request, monkeypatch, tmp_path):
    return request.param(monkeypatch, tmp_path)


@pytest.fixture
def run(tmp_path):
    """Has a profiler run a program that says when it ran; gives the report."""

    def started(profiler, program=PROGRAM, **given):
        report = tmp_path / f"report{profiler.suffix}"
        profiler.run([*program, str(tmp_path / "ran")], report, environment=dict(os.environ), **given)
        return report

    return started


def test_it_runs_the_program_and_reads_what_it_wrote_of_it(kind, run, tmp_path):
    profiler = kind.profiler()
    profile = profiler.read(run(profiler), KERNEL)
    assert (tmp_path / "ran").read_text() == "ran"
    assert profile.kernel == KERNEL
    assert profile.metrics["duration_s"] > 0
    assert profile.ncu_version


def test_the_program_runs_where_we_are_since_it_may_import_us_from_there(kind, run, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.getcwd())"
    run(kind.profiler(), [sys.executable, "-c", write])
    assert (tmp_path / "ran").read_text() == str(tmp_path / "here")


def test_it_says_who_it_is(kind):
    profiler = kind.profiler()
    assert profiler.name in {"ncu", "fake"}
    assert profiler.version[0].isdigit()
    assert profiler.suffix.startswith(".")


@pytest.mark.parametrize("fault", FAILURES)
def test_each_failure_is_an_error_of_its_own_with_a_cure_and_leaves_no_report(kind, run, tmp_path, fault):
    profiler = kind.profiler(fault)
    with pytest.raises(FAILURES[fault]) as raised:
        run(profiler, limit_s=2.0)
    assert raised.value.cure
    assert not list(tmp_path.glob(f"*{profiler.suffix}"))


def test_a_program_that_fails_is_a_failed_profile(kind, run):
    with pytest.raises(ProfileError):
        run(kind.profiler(), [sys.executable, "-c", "import sys; sys.exit(4)"])


def test_what_is_no_report_cannot_be_read(kind, tmp_path):
    (tmp_path / "report").write_bytes(b"")
    with pytest.raises((PerfsvcError, ValueError)):
        kind.profiler().read(tmp_path / "report", KERNEL)


# --- Nsight Compute's alone ------------------------------------------------------------------------------------------


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    return Ncu(monkeypatch, tmp_path)


def test_the_command_line_is_the_one_that_was_measured(ncu, run, tmp_path, monkeypatch):
    monkeypatch.setenv("NCU_STAND_IN_ASKED", str(tmp_path / "asked"))
    run(ncu.profiler())
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked.pop("program") == [*PROGRAM, str(tmp_path / "ran")]
    assert asked.pop("o") == str(tmp_path / "report.ncu-rep")
    assert asked.pop("log_file") == str(tmp_path / "report.log")
    assert asked == {
        "target_processes": "application-only",
        "null_stdin": True,
        "nvtx": True,
        "nvtx_include": "perfsvc@measure/",
        "launch_count": "1",
        "replay_mode": "kernel",
        "cache_control": "all",
        "clock_control": "none",
        "set": "basic",
        "section": [],
        "f": True,
    }


def test_our_own_set_is_of_the_sections_that_our_metrics_come_from(ncu, run, tmp_path, monkeypatch):
    monkeypatch.setenv("NCU_STAND_IN_ASKED", str(tmp_path / "asked"))
    run(ncu.profiler(sections="perfsvc"))
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["set"] is None
    assert asked["section"] == list(SECTIONS)


@pytest.mark.parametrize(
    ("fault", "kind", "said", "cure"),
    [
        ("permission", CountersError, "ERR_NVGPUCTRPERM", "run perfsvc as root"),
        ("permission", CountersError, "ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("permission", CountersError, "ERR_NVGPUCTRPERM", "--cap-add=SYS_ADMIN"),
        ("held", CountersError, "DCGM", "dcgmi profile --pause"),
        ("lock", CountersError, "lock", "TMPDIR"),
        ("old", NoProfilerError, "'--null-stdin'", "newer"),
        ("old_gpu", NoProfilerError, "does not know this GPU", "newer"),
        ("odd", ProfileError, "ended with 3: .*The sky is falling", "ncu on a program of its own"),
        ("nothing", ProfileError, "saw no launch in the range measure of perfsvc", "NVTX_DISABLE"),
    ],
)
def test_what_ncu_says_is_translated(ncu, run, fault, kind, said, cure):  # noqa: PLR0917 - a row of the table above
    with pytest.raises(kind, match=said) as raised:
        run(ncu.profiler(fault))
    assert cure in raised.value.cure


def test_one_that_hangs_is_killed_with_the_program_it_started(ncu, run, tmp_path):
    program = [sys.executable, "-c", "import time; time.sleep(100)"]
    with pytest.raises(TimeLimitError, match="still running after 2 s"):
        run(ncu.profiler("hang"), program, limit_s=2.0)
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 10
    while _lives(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _lives(child)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_report_of_another_kernel_is_refused(ncu, run):
    profiler = ncu.profiler()
    with pytest.raises(PerfsvcError, match="not of transpose_tiled"):
        profiler.read(run(profiler), "transpose_tiled")


def test_a_report_of_an_earlier_look_is_not_taken_for_one_of_this(ncu, run, tmp_path):
    run(ncu.profiler())
    with pytest.raises(ProfileError):
        run(ncu.profiler("nothing"))
    assert not (tmp_path / "report.ncu-rep").exists()


def test_ncu_is_found_beside_nvcc_and_where_its_packages_put_it(monkeypatch, tmp_path):
    from perfsvc.profile import commands

    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(commands, "find_nvcc", lambda: tmp_path / "toolkit" / "bin" / "nvcc")
    monkeypatch.setattr(commands, "TOOLKITS", tmp_path / "local")
    monkeypatch.setattr(commands, "PACKAGES", tmp_path / "opt")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    assert commands.find_program("ncu", "nsight-compute") is None
    with pytest.raises(NoProfilerError, match="was not found") as raised:
        NcuProfiler()
    assert "install Nsight Compute" in raised.value.cure
    places = [
        "opt/nsight-compute/2024.3.2/ncu",
        "opt/nsight-compute/2025.10.1/ncu",
        "local/cuda-12.9/bin/ncu",
        "toolkit/bin/ncu",
    ]
    for place, expected in zip(places, [0, 1, 2, 3], strict=True):
        (tmp_path / place).parent.mkdir(parents=True)
        shutil.copy(DATA / "ncu_stand_in" / "ncu", tmp_path / place)
        assert commands.find_program("ncu", "nsight-compute") == tmp_path / places[expected]
