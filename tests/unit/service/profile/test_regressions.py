"""Errors that keep a profiler from one case, and errors that keep it from a GPU."""

import pytest

from perfsvc.errors import (
    CountersError,
    DatabaseError,
    MissingPackageError,
    NoProfilerError,
    PerfsvcError,
    ProfileError,
)
from perfsvc.model import Case, DeviceInfo
from perfsvc.service.profile.profile import CaseProfiler, ProfilerSettings, Subject
from perfsvc.service.profile.regressions import RegressionExplainer
from perfsvc.store import Store

GPU = DeviceInfo("cuda", "H100", "GPU-1", "0", "sm_90", "13.0")


@pytest.fixture
def explainer(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/perf.db") as store:
        yield RegressionExplainer(store, ProfilerSettings({GPU.uuid: GPU}, {}))


@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        (CountersError, ["first"]),
        (NoProfilerError, ["first"]),
        (MissingPackageError, ["first"]),
        (ProfileError, ["first", "second"]),
        (DatabaseError, ["first", "second"]),
    ],
)
def test_only_an_error_that_holds_for_the_whole_gpu_is_not_tried_again(explainer, monkeypatch, kind, tried):
    seen = []

    def profile(_, subject, like=None):
        seen.append(subject.case.benchmark)
        raise kind("no profile", cure="none")

    monkeypatch.setattr(CaseProfiler, "profile", profile)
    for benchmark in ("first", "second"):
        subject = Subject(Case(benchmark, "v", ()), 1, 1, GPU.uuid, GPU)
        with pytest.raises(PerfsvcError, match="no profile"):
            explainer.profiles(subject, subject)
    assert seen == tried
