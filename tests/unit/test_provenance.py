from pathlib import Path

import pytest

from perfsvc.service.running.provenance import collect, scope_of
from perfsvc.suite import Selection

ALL = Selection()


def test_the_scope_of_a_whole_suite_is_the_name_of_its_folder(tmp_path: Path) -> None:
    assert scope_of(tmp_path / "kernels", ALL, None) == "kernels"
    assert scope_of(tmp_path / "elsewhere" / "kernels", ALL, None) == "kernels"


def test_a_relative_folder_has_the_scope_of_its_real_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").mkdir()
    monkeypatch.chdir(tmp_path / "kernels")
    assert scope_of(Path(), ALL, None) == "kernels"


def test_the_order_of_globs_makes_no_other_scope() -> None:
    one = scope_of(Path("kernels"), Selection(("dot", "a*"), ("x", "b")), "smoke")
    assert one == scope_of(Path("kernels"), Selection(("a*", "dot"), ("b", "x")), "smoke")
    assert one == "kernels --points=smoke '--select=a*' --select=dot --exclude=b --exclude=x"


@pytest.mark.parametrize(
    ("selection", "points"), [(Selection(("dot",)), None), (Selection((), ("dot",)), None), (ALL, "full")]
)
def test_other_cases_are_another_scope(selection: Selection, points: str | None) -> None:
    assert scope_of(Path("kernels"), selection, points) != scope_of(Path("kernels"), ALL, None)


def test_a_run_remembers_its_scope(tmp_path: Path) -> None:
    origin = collect(tmp_path, command_line="perfsvc run", label="", scope="kernels", seed=1, replicas=3)
    assert origin.scope == "kernels"
    assert (origin.commit, origin.dirty) == ("", False)
