"""Reading reports in a process of its own, whose death is only an error."""

import os
import sys

import pytest

from perfsvc.errors import MissingPackageError, ProfileError, ReportError
from perfsvc.installation import install_command
from perfsvc.profile import reports

ENDS = {"SIGSEGV": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "exit status 3": "import os; os._exit(3)"}


@pytest.mark.slow
def test_the_profile_is_the_same_as_without_a_process_of_its_own(ncu_report, elsewhere):
    report = ncu_report("transpose-tiled")
    assert reports.read_isolated(report) == elsewhere(reports.read, report)
    assert reports.read_isolated(report, kernel="transpose_tiled").kernel == "transpose_tiled"


@pytest.mark.slow
def test_errors_are_the_same_as_without_a_process_of_its_own(ncu_report, tmp_path, elsewhere):
    (tmp_path / "empty.ncu-rep").write_bytes(b"")
    for path, kernel in ((ncu_report("transpose-tiled"), "another"), (tmp_path / "empty.ncu-rep", None)):
        with pytest.raises(ReportError) as here:
            elsewhere(reports.read, path, kernel=kernel)
        with pytest.raises(ReportError) as there:
            reports.read_isolated(path, kernel=kernel)
        assert (there.value.what, there.value.cure) == (here.value.what, here.value.cure)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Return a function that replaces NVIDIA's library in the reading process."""

    def put(text):
        (tmp_path / "ncu_report.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    return put


@pytest.mark.parametrize("how", ENDS)
def test_a_library_that_ends_its_process_is_an_error_with_a_cure(ncu_report, library, how):
    library(ENDS[how])
    with pytest.raises(ProfileError, match=f"died \\({how}\\) while it read transpose-tiled") as raised:
        reports.read_isolated(ncu_report("transpose-tiled"))
    assert raised.value.cure.startswith(f"{install_command('profile')} --upgrade")


def test_a_library_that_does_not_finish_is_killed(ncu_report, library, monkeypatch):
    monkeypatch.setattr(reports, "LIMIT_S", 0.25)
    library("import time; time.sleep(100)")
    with pytest.raises(ProfileError, match=r"did not end within 0\.25 s"):
        reports.read_isolated(ncu_report("transpose-tiled"))


def test_a_library_that_cannot_be_loaded_counts_as_missing(ncu_report, library):
    library("raise ImportError('GLIBC_2.99 not found')")
    with pytest.raises(MissingPackageError, match="ncu-report"):
        reports.read_isolated(ncu_report("transpose-tiled"))


def test_without_the_library_no_process_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr(reports, "find_spec", lambda _: None)
    monkeypatch.setattr(reports.programs, "run", None)
    with pytest.raises(MissingPackageError):
        reports.read_isolated(tmp_path / "none.ncu-rep")
