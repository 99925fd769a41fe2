"""What keeps a profiler from one case, and what keeps it from a GPU."""

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
from perfsvc.service.profile.profile import ProfileSettings, Profiling, Subject
from perfsvc.service.profile.regressions import Sides, Why
from perfsvc.store import Store

BOARD = DeviceInfo("cuda", "H100", "GPU-1", "0", "sm_90", "13.0")


@pytest.fixture
def why(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/perf.db") as store:
        yield Why(store, ProfileSettings({BOARD.uuid: BOARD}, {}))


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
def test_only_what_holds_for_the_whole_board_is_not_tried_again(why, monkeypatch, kind, tried):
    seen = []

    def profile(_, subject, like=None):
        seen.append(subject.case.benchmark)
        raise kind("no profile", cure="none")

    monkeypatch.setattr(Profiling, "profile", profile)
    for benchmark in ("first", "second"):
        subject = Subject(Case(benchmark, "v", ()), 1, 1, BOARD.uuid, BOARD)
        with pytest.raises(PerfsvcError, match="no profile"):
            why.profiles(Sides(subject, subject))
    assert seen == tried
