"""What a build writes, replaces, removes and leaves alone."""

import contextlib
import errno
import filecmp
import importlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsvc.errors import InfrastructureError, MissingPackageError, UsageError
from perfsvc.files import Folder
from perfsvc.model import Case, Environment, Measurement, Status, Verdict, Work
from perfsvc.report.pages import views
from perfsvc.service.dashboard.build import build
from perfsvc.service.dashboard.folder import MANIFEST, writing
from perfsvc.store import MeasurementEntry
from tests.pages import walking


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_empty_database_and_a_quiet_night_say_so_and_unchanged_files_are_not_rewritten(nights, tmp_path, names):
    site = tmp_path / "site"
    pages = build(nights.store, site)
    assert [page.stem for page in pages] == ["index", "findings", "series", "benchmarks", "fleet"]
    assert "Nothing was measured yet" in pages[0].read_text()
    before = (site / "assets" / "plotly.min.js").stat()
    (site / "assets" / "site.css").write_text("changed")
    run = nights.night({names.tiled: 1e-4})
    nights.judge(run, {names.tiled: Verdict.UNCHANGED})
    (first, *_) = build(nights.store, site)
    assert "<h1>Nothing new</h1>" in first.read_text()
    assert "No series moved" in first.read_text()
    after = (site / "assets" / "plotly.min.js").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (site / "assets" / "site.css").read_text() != "changed"


def test_standing_and_resolved_findings_are_shown(nights, tmp_path, names):
    nights.night({names.tiled: 1e-4})
    raised = nights.night({names.tiled: 1.2e-4})
    number = nights.find(raised, [names.tiled])
    nights.night({names.tiled: 1.2e-4})
    (first, *_) = build(nights.store, tmp_path / "site")
    assert "Nothing new, 1 finding standing" in first.read_text()
    back = nights.night({names.tiled: 1e-4})
    (moved,) = nights.store.findings.get(number).moved
    assert nights.store.findings.update(back, [(number, moved.series, 1)], []).resolved == (number,)
    (first, *_) = build(nights.store, tmp_path / "site")
    assert "Resolved tonight" in first.read_text()
    assert "Standing findings" not in first.read_text()


def test_a_run_that_is_excluded_or_has_uncommitted_changes_is_not_tonight_and_does_not_count_for_levels(
    nights, tmp_path, names
):
    for _ in range(6):
        judged = nights.night({names.tiled: 1e-4})
    bad = nights.night({names.tiled: 9e-4})
    nights.store.exclusions.exclude(bad, None, reason="<b>shared</b> GPU", by="ann")
    for _ in range(2):
        nights.night({names.tiled: 9e-4}, dirty=True)
    build(nights.store, tmp_path / "site")
    assert f"<span>run {judged}</span>" in (tmp_path / "site" / "index.html").read_text()
    page = (tmp_path / "site" / names.page(names.tiled)).read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert (data["excluded"], data["dirty"]) == ([6], [7, 8])
    assert data["texts"]["6"] == "excluded: <b>shared</b> GPU"
    assert [level[:2] for level in data["levels"]] == [[0, 5]]
    assert page.count("<s>") == 1  # struck through
    assert "excluded: &lt;b&gt;shared&lt;/b&gt; GPU" in page


@pytest.mark.parametrize("step", ["with_series", pytest.param("_pages", marks=pytest.mark.slow)])
def test_a_case_that_is_renamed_during_a_build_leaves_no_dead_link(nights, tmp_path, names, monkeypatch, step):
    for _ in range(2):
        run = nights.night({names.tiled: 1e-4, names.naive: 3e-4})
        nights.judge(run, {names.tiled: Verdict.REGRESSION, names.naive: Verdict.UNCHANGED}, ratio=1.2)
    nights.find(run, [names.tiled])
    module = importlib.import_module("perfsvc.service.dashboard.build")
    do_step = getattr(module, step)

    def renaming(*given):
        """Do a step of the build, after a run has measured a renamed case."""
        if nights.count == 2:
            nights.night({replace(names.tiled, variant="tiled2", formerly=("tiled",)): 1e-4})
        return do_step(*given)

    monkeypatch.setattr(module, step, renaming)
    build(nights.store, tmp_path / "site")
    files = files_of(tmp_path / "site")
    pages = {name: (tmp_path / "site" / name).read_text() for name in files if name.endswith(".html")}
    assert not {link for name, text in pages.items() for link in walking.links(name, text)} - files
    compared = [text for name, text in pages.items() if name.startswith("compare/")]
    rows = [json.loads(text.partition('id="rows">')[2].partition("</script>")[0])["rows"] for text in compared]
    assert [len(of_page) for of_page in rows] == [2, 2]
    assert {row[-1].removeprefix("../") for of_page in rows for row in of_page} - {""} <= files
    assert "transpose/tiled2" in pages["findings/1.html"]  # the finding was read with the name that the histories have


def test_the_number_of_runs_is_limited_obsolete_pages_are_removed_and_foreign_files_are_not(nights, tmp_path, names):
    nights.night({names.tiled: 1e-4, names.naive: 3e-4})
    site = tmp_path / "site"
    build(nights.store, site)
    (site / "CNAME").write_text("perf.example.org")
    (site / "series" / "notes.html").write_text("mine")
    nights.night({names.naive: 3e-4})
    build(nights.store, site, last=1)
    assert "1 run" in (site / names.page(names.naive)).read_text()
    assert not (site / names.page(names.tiled)).exists()
    assert (site / names.page(names.naive)).exists()
    assert (site / "CNAME").read_text() == "perf.example.org"
    assert (site / "series" / "notes.html").read_text() == "mine"


def test_a_folder_with_a_foreign_page_and_a_file_are_refused_before_anything_is_written(nights, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    with pytest.raises(UsageError, match=r"did not write: index\.html"):
        build(nights.store, site)
    assert files_of(site) == {"index.html"}
    assert (site / "index.html").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is no folder"):
        build(nights.store, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_build_that_was_killed_leaves_whole_pages_and_the_next_one_finishes(tmp_path):
    folder = tmp_path / "site"
    with writing(folder, ["a.html", "b/c.html"]) as opened:
        opened.write("a.html", b"old")
        opened.write("b/c.html", b"old")
    with contextlib.suppress(KeyboardInterrupt), writing(folder, ["a.html", "d.html"]) as opened:
        opened.write("a.html", b"new")
        raise KeyboardInterrupt
    assert (folder / "a.html").read_bytes() == b"new"
    assert files_of(folder) == {"a.html", "b/c.html", MANIFEST}
    with writing(folder, ["d.html"]) as opened:
        opened.write("d.html", b"new")
    assert files_of(folder) == {"d.html", MANIFEST}
    assert not (folder / "b").exists()
    (folder / "series").mkdir()
    for parent in (folder, folder / "series"):
        (parent / f".perfsvc-new-{32 * '0'}").touch()  # half written
    with writing(folder, ["d.html", "series/a.html"]) as opened:
        opened.write("d.html", b"newer")
    assert files_of(folder) == {"d.html", MANIFEST}


def test_a_full_disk_is_reported_and_keeps_the_old_page(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    with writing(folder, ["a.html"]) as opened:
        opened.write("a.html", b"old")

    def full(self, name, content, **_):
        if name == "a.html":
            raise OSError(errno.ENOSPC, "No space left on device")
        really(self, name, content)

    really = Folder.write
    monkeypatch.setattr(Folder, "write", full)
    with pytest.raises(InfrastructureError, match="No space left"), writing(folder, ["a.html"]) as opened:
        opened.write("a.html", b"new")
    assert (folder / "a.html").read_bytes() == b"old"
    assert files_of(folder) == {"a.html", MANIFEST}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "site"
    path.mkdir()
    return path


@pytest.fixture
def victim(tmp_path):
    """A folder outside the site, with a file."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious").write_text("mine")
    return folder


def test_a_forged_manifest_removes_nothing_outside_the_folder_below_a_link_or_by_a_second_name(folder, victim):
    (folder / "x").symlink_to("../victim")
    listed = ["x/precious", "x", "missing/a.html", "a" * 300, "./a.html", ".//a.html", "", "../victim/precious"]
    (folder / MANIFEST).write_text(json.dumps({"files": [*listed, str(victim / "precious")]}))
    with writing(folder, ["a.html"]) as opened:
        opened.write("a.html", b"new")
    assert (victim / "precious").read_text() == "mine"
    assert (folder / "x").is_symlink()
    assert (folder / "a.html").read_bytes() == b"new"
    assert json.loads((folder / MANIFEST).read_text())["files"] == ["a.html"]


def test_a_link_to_a_folder_is_refused_before_anything_is_written(folder, victim):
    (folder / "series").symlink_to("../victim")
    (folder / MANIFEST).write_text(json.dumps({"files": ["series/precious"]}))
    problem = pytest.raises(UsageError, match=f"{folder}/series is no folder, or is a link")
    with problem as refused, writing(folder, ["index.html", "series/precious"]):
        pytest.fail("the folder was opened")
    assert refused.value.cure == "remove it, or name another folder"
    assert files_of(victim) == {"precious"}
    assert (victim / "precious").read_text() == "mine"
    assert not (folder / "index.html").exists()


def test_no_link_is_written_through_but_the_folder_that_the_user_names(folder, victim):
    for name in (".index.html.part", f".{MANIFEST}.part", MANIFEST):
        (folder / name).symlink_to("../victim/precious")
    with writing(folder, ["index.html"]) as opened:
        opened.write("index.html", b"new")
    assert (victim / "precious").read_text() == "mine"
    assert (folder / "index.html").read_bytes() == b"new"
    assert json.loads((folder / MANIFEST).read_text())["files"] == ["index.html"]
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to("../victim/precious")  # a listed page
    (folder.parent / "link").symlink_to("site")  # the folder that the user names may be a link
    with writing(folder.parent / "link", ["index.html"]) as opened:
        opened.write("index.html", b"mine")  # equal to what the link shows
    assert not (folder / "index.html").is_symlink()
    assert (victim / "precious").read_text() == "mine"


def test_with_a_damaged_manifest_nothing_is_removed(folder):
    (folder / "old.html").write_text("old")
    for damaged in ("", "[]", '{"files": 3}', '{"files": [3]}', "\xff", "[" * 100_000):
        (folder / MANIFEST).write_bytes(damaged.encode("latin-1"))
        with writing(folder, ["a.html"]) as opened:
            opened.write("a.html", b"new")
        assert files_of(folder) == {"a.html", "old.html", MANIFEST}, damaged[:20]
        (folder / "a.html").unlink()


def test_without_plotly_the_error_has_a_cure(nights, tmp_path, monkeypatch):
    module = importlib.import_module("perfsvc.service.dashboard.build")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="plotly is not installed"):
        build(nights.store, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_the_size_of_a_page_does_not_grow_with_the_number_of_metrics(nights, tmp_path, names):
    run = nights.night({names.tiled: 1e-4})
    metrics = {f"metric {number}": float(number + 1) for number in range(40)}
    many = Measurement(Case("serve", "requests", ()), "GPU-1", 0, Status.OK, samples_s=(), metrics=metrics)
    nights.store.measurements.put(run, [MeasurementEntry(many, Environment("580.1"), Work(), None)])
    assert len(nights.store.series.rebuild()) == len(metrics) + 1  # and what the run measured on its device
    build(nights.store, tmp_path / "site")
    pages = [page.read_text() for page in (tmp_path / "site" / "series").glob("serve-requests*.html")]
    assert len(pages) == len(metrics)
    for page in pages:
        _, _, others = page.partition("Other series of the case")
        assert others.partition("</table>")[0].count("<a href=") == views.MOST_OTHERS
        assert f"{len(metrics) - 1 - views.MOST_OTHERS} further series" in others
    assert all(f"metric {number}" in (tmp_path / "site" / "series.html").read_text() for number in range(40))


@pytest.mark.slow
def test_a_build_over_an_older_site_equals_a_build_from_nothing(nights, tmp_path, names, monkeypatch):
    cases = [names.tiled, names.naive, *(replace(names.tiled, variant=f"v{number}") for number in range(3))]
    runs = [nights.night(dict.fromkeys(cases, 1e-4 * (1 + night % 3))) for night in range(3)]
    changes = (
        lambda: nights.night(dict.fromkeys(cases[1:], 2e-4)),
        lambda: nights.store.exclusions.exclude(runs[1], None, by="me", reason="a hot GPU"),
        lambda: nights.night({cases[0]: "it crashed", cases[1]: 1e-4}),
        lambda: None,
    )
    made = datetime(2026, 4, 1, tzinfo=UTC)
    monkeypatch.setattr(
        importlib.import_module("perfsvc.service.dashboard.build"), "datetime", SimpleNamespace(now=lambda _: made)
    )
    for number, change in enumerate(changes):
        change()
        for folder in ("site", f"new-{number}"):
            build(nights.store, tmp_path / folder)
        compared = filecmp.dircmp(tmp_path / "site", tmp_path / f"new-{number}", ignore=[])
        for folder in (compared, *compared.subdirs.values()):
            assert not folder.left_only + folder.right_only
            assert filecmp.cmpfiles(folder.left, folder.right, folder.common_files, shallow=False)[1:] == ([], [])
