"""The contract of every profiler (perfsvc/profile/profiler.py); Nsight Compute is replaced by a stand-in."""

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
RANGE = "measure"
"""The name of the only range in the stored report."""
LAUNCH = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
launch = folder / "0"
launch.mkdir(parents=True)
(launch / "launch.json").write_text(json.dumps({"range": "measure", "record": {"steps": []}}))
(launch / "report.json").write_text(json.dumps({"launch": 0}))
(folder / "ran").write_text(os.getcwd())
"""
"""What the process of a session leaves in its folder after a launch."""
PROGRAM = [sys.executable, "-c", LAUNCH]


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
            self._monkeypatch.setenv("NCU_STAND_IN", fault)
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
    """Return a function that runs a program, which leaves a mark, under a profiler and returns the report."""

    def started(profiler, program=PROGRAM, **given):
        report = tmp_path / f"report{profiler.suffix}"
        profiler.run([*program, str(tmp_path / "session")], report, environment=dict(os.environ), **given)
        return report

    return started


def test_a_profiler_runs_the_program_in_the_current_folder_and_reads_its_own_report(kind, run, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    profiler = kind.profiler()
    assert profiler.name in {"ncu", "fake"}
    assert profiler.version[0].isdigit()
    assert profiler.suffix.startswith(".")
    found = profiler.read(run(profiler), {"another": KERNEL, RANGE: KERNEL})
    assert (tmp_path / "session" / "ran").read_text() == str(tmp_path / "here")
    assert isinstance(found["another"], PerfsvcError)  # the report lacks this range
    assert found["another"].cure
    profile = found[RANGE]
    assert profile.kernel == KERNEL
    assert profile.metrics["duration_s"] > 0
    assert profile.ncu_version


def test_each_failure_of_the_fake_has_its_own_error_with_a_cure_and_leaves_no_report(run, tmp_path):
    failures = {"permission": CountersError, "held": CountersError, "old": NoProfilerError, "nothing": ProfileError}
    for fault, error in (failures | {"hang": TimeLimitError}).items():
        with pytest.raises(error) as raised:
            run(Fake(None, tmp_path).profiler(fault), limit_s=0.2)
        assert raised.value.cure
        assert not list(tmp_path.glob("report*"))
        shutil.rmtree(tmp_path / "session", ignore_errors=True)


def test_a_program_that_fails_is_a_failed_profile(kind, run):
    with pytest.raises(ProfileError):
        run(kind.profiler(), [sys.executable, "-c", "import sys; sys.exit(4)"])


@pytest.mark.slow
def test_the_report_of_a_program_that_crashes_has_the_launches_before_the_crash(kind, run, tmp_path):
    profiler = kind.profiler()
    with pytest.raises(ProfileError):
        run(profiler, [sys.executable, "-c", f"{LAUNCH}\nimport signal; os.kill(os.getpid(), signal.SIGSEGV)"])
    assert profiler.read(tmp_path / f"report{profiler.suffix}", {RANGE: KERNEL})[RANGE].kernel == KERNEL


def test_a_file_that_is_no_report_cannot_be_read(kind, tmp_path):
    (tmp_path / "report").write_bytes(b"")
    with pytest.raises((PerfsvcError, ValueError)):
        kind.profiler().read(tmp_path / "report", {RANGE: KERNEL})


# --- Nsight Compute alone --------------------------------------------------------------------------------------------


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    return Ncu(monkeypatch, tmp_path)


def test_the_command_line_is_the_one_that_was_measured(ncu, run, tmp_path, monkeypatch):
    monkeypatch.setenv("NCU_STAND_IN_ASKED", str(tmp_path / "asked"))
    run(ncu.profiler())
    options = json.loads((tmp_path / "asked").read_text())
    assert options.pop("program") == [*PROGRAM, str(tmp_path / "session")]
    assert options.pop("o") == str(tmp_path / "report.ncu-rep")
    assert options.pop("log_file") == str(tmp_path / "report.log")
    assert options == {
        "target_processes": "application-only",
        "null_stdin": True,
        "nvtx": True,
        "nvtx_include": "perfsvc@measure/",
        "replay_mode": "kernel",
        "cache_control": "all",
        "clock_control": "none",
        "set": "basic",
        "section": [],
        "f": True,
    }


def test_the_set_perfsvc_has_the_sections_that_its_metrics_come_from(ncu, run, tmp_path, monkeypatch):
    monkeypatch.setenv("NCU_STAND_IN_ASKED", str(tmp_path / "asked"))
    run(ncu.profiler(sections="perfsvc"))
    options = json.loads((tmp_path / "asked").read_text())
    assert options["set"] is None
    assert options["section"] == list(SECTIONS)


@pytest.mark.parametrize(
    ("fault", "error", "message", "cures"),
    [
        (
            "permission",
            CountersError,
            "ERR_NVGPUCTRPERM",
            ["run perfsvc as root", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN"],
        ),
        ("held", CountersError, "DCGM", ["dcgmi profile --pause"]),
        ("lock", CountersError, "lock", ["TMPDIR"]),
        ("old_option", NoProfilerError, "'--null-stdin'", ["newer"]),
        ("old_gpu", NoProfilerError, "does not know this GPU", ["newer"]),
        ("odd", ProfileError, "ended with 3: .*The sky is falling", ["ncu with another program"]),
        ("nothing", ProfileError, "saw no launch in the range measure of perfsvc", ["NVTX_DISABLE"]),
    ],
)
def test_errors_of_ncu_are_translated_and_leave_no_report(ncu, run, tmp_path, fault, error, message, cures):  # noqa: PLR0917 - a row of the table above
    with pytest.raises(error, match=message) as raised:
        run(ncu.profiler(fault))
    assert [cure for cure in cures if cure not in raised.value.cure] == []
    assert not list(tmp_path.glob("*.ncu-rep"))


@pytest.mark.slow
def test_ncu_is_killed_with_its_program_if_it_hangs(ncu, run, tmp_path):
    program = [sys.executable, "-c", "import time; time.sleep(100)"]
    with pytest.raises(TimeLimitError, match="still running after 2 s") as raised:
        run(ncu.profiler("hang"), program, limit_s=2.0)
    assert raised.value.cure
    assert not list(tmp_path.glob("*.ncu-rep"))
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 10
    while _is_alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _is_alive(child)


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_old_report_is_not_mistaken_for_a_new_one(ncu, run, tmp_path):
    run(ncu.profiler())
    with pytest.raises(ProfileError):
        run(ncu.profiler("nothing"))
    assert not (tmp_path / "report.ncu-rep").exists()


def test_ncu_is_found_beside_nvcc_and_in_its_packages(monkeypatch, tmp_path):
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
