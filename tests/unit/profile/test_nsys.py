"""Running Nsight Systems, by a stand-in on PATH."""

import os
import sys

import pytest

from perfsvc.errors import NoProfilerError, ProfileError, TimeLimitError
from perfsvc.profile import commands

PROGRAM = [sys.executable, "-c", "print('ran')"]
WRITES = """#!/bin/sh
for word; do
  case "$word" in --output=*) report="${word#--output=}" ;; esac
done
echo "$@" >"$report"
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Return a function that puts a program called nsys on PATH, and nothing else."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(commands, "find_nvcc", lambda: None)
    monkeypatch.setattr(commands, "TOOLKITS", tmp_path / "none")
    monkeypatch.setattr(commands, "PACKAGES", tmp_path / "none")

    def put(text):
        (tmp_path / "nsys").write_text(text)
        (tmp_path / "nsys").chmod(0o755)

    return put


def run(tmp_path, **given):
    report = tmp_path / f"report{commands.TIMELINE_SUFFIX}"
    commands.run_nsys(PROGRAM, report, environment=dict(os.environ) | {"PATH": "/usr/bin:/bin"}, **given)
    return report.read_text()


def test_nsys_traces_cuda_and_nvtx_and_takes_no_cpu_samples(stand_in, tmp_path):
    stand_in(WRITES)
    words = run(tmp_path).strip()
    assert words.startswith("profile --trace=cuda,nvtx --sample=none --cpuctxsw=none ")
    assert words.endswith(f"report.nsys-rep {' '.join(PROGRAM)}")


def test_without_nsys_the_cure_is_to_install_it(stand_in, tmp_path):
    with pytest.raises(NoProfilerError, match="was not found") as raised:
        run(tmp_path)
    assert "install Nsight Systems" in raised.value.cure


def test_a_missing_timeline_a_hanging_nsys_and_one_that_cannot_start_are_errors(stand_in, tmp_path):
    ends = {
        "#!/bin/sh\necho no rights\nexit 1": (ProfileError, "wrote no timeline: no rights"),
        "#!/bin/sh\nexit 0": (ProfileError, "no output"),
        "#!/bin/sh\nsleep 100": (TimeLimitError, "still running after 0.2 s"),
        "#!/nowhere/sh\n": (NoProfilerError, "cannot be run"),
    }
    for text, (error, output) in ends.items():
        stand_in(text)
        with pytest.raises(error, match=output):
            run(tmp_path, limit_s=0.2 if "sleep" in text else 20)
