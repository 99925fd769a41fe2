"""What the store refuses because no trusted key has signed it, on both databases."""

import tracemalloc
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.errors import UntrustedError
from perfsvc.keys import Keys
from perfsvc.model import Kind, Package, PythonCode, ReplayRecord, digest
from perfsvc.store import CaseCode, Store
from tests.unit.store.conftest import BENCH, ON_BOTH

CUBIN, EVIL = b"\x7fELF", b"import os; os.system('id')"


@pytest.fixture
def code(story):
    record = ReplayRecord(story.tiled, Kind.KERNEL, (), (), (digest(CUBIN),), digest(BENCH), seed=7)
    return CaseCode(record, {digest(CUBIN): CUBIN}, BENCH, {})


@pytest.fixture
def run(story, code):
    """A run whose binary this host has stored."""
    (binary,) = story.store.binaries.put([code])
    run = story.begin()
    story.put(run, story.tiled, binary=binary)
    return run


@pytest.fixture
def elsewhere(story, place, tmp_path, monkeypatch):
    """The same database, opened by a host with other keys."""
    monkeypatch.setenv("PERFSVC_KEYS", str(tmp_path / "elsewhere"))
    with Store.open(place) as store:
        Keys().signing()
        yield store


@ON_BOTH
def test_a_host_refuses_what_a_host_without_a_common_key_has_stored(story, run, elsewhere):
    with pytest.raises(UntrustedError, match=r"is signed by the key .*, which you do not trust") as raised:
        elsewhere.binaries.replay(story.tiled.id, run)
    assert "perfsvc key add" in raised.value.cure
    assert elsewhere.binaries.get([1]) == elsewhere.binaries.call_python([1]) == {}


@pytest.mark.usefixtures("elsewhere")
def test_a_host_that_adds_the_key_runs_what_the_other_has_stored(story, place, code, run, keys):
    Keys().add(keys.read_text())
    with Store.open(place) as store:
        assert store.binaries.replay(story.tiled.id, run)[0] == code.record


def test_a_host_that_builds_the_same_code_signs_it_and_takes_no_signature_away(story, code, run, elsewhere):
    assert elsewhere.binaries.put([code]) == [1]
    assert elsewhere.binaries.replay(story.tiled.id, run)[0] == code.record
    assert story.store.binaries.replay(story.tiled.id, run)[0] == code.record


def plant(story, content):
    """Replace the stored benchmark file with consistent digests, as an attacker with SQL would."""
    evil = digest(content)
    story.execute(
        "INSERT INTO artifacts VALUES (:sha256, 'bench', :size, :content)",
        sha256=evil,
        size=len(content),
        content=zlib.compress(content),
    )
    ((record,),) = story.execute("SELECT record FROM binaries")
    record = record.replace(digest(BENCH), evil)
    story.execute(
        "UPDATE binaries SET record = :record, digest = :digest", record=record, digest=digest(record.encode())
    )
    story.execute("UPDATE binary_files SET name = :evil, sha256 = :evil WHERE role = 'bench'", evil=evil)


def test_a_benchmark_file_that_was_replaced_in_the_database_is_refused_with_every_signature(story, run):
    plant(story, EVIL)
    with pytest.raises(UntrustedError, match="was changed in the database after it was stored"):
        story.store.binaries.replay(story.tiled.id, run)
    assert story.store.binaries.get([1]) == story.store.binaries.call_python([1]) == {}
    story.execute("UPDATE binaries SET signatures = signatures || ' ' || signatures || ' 000000000000:00'")
    with pytest.raises(UntrustedError, match="was changed"):
        story.store.binaries.replay(story.tiled.id, run)
    story.execute("UPDATE binaries SET signatures = ''")
    with pytest.raises(UntrustedError, match="is not signed"):
        story.store.binaries.replay(story.tiled.id, run)


@ON_BOTH
def test_building_again_mends_what_was_changed(story, code, run):
    story.execute("UPDATE binaries SET record = 'x', signatures = ''")
    story.execute("UPDATE artifacts SET content = :blob", blob=b"x")
    with pytest.raises(UntrustedError):
        story.store.binaries.replay(story.tiled.id, run)
    assert story.store.binaries.put([code]) == [1]
    assert story.store.binaries.replay(story.tiled.id, run) == (code.record, {digest(CUBIN): CUBIN}, BENCH)


def test_python_modules_that_were_replaced_are_refused(story, code):
    (binary,) = story.store.binaries.put([code])
    run, text = story.begin(), b"# helpers.py"
    python = PythonCode((Package("triton", "3.4.0", "aa"),), (), (("helpers", digest(text)),))
    story.put(run, story.tiled, binary=binary, python=python, files={digest(text): text})
    assert story.store.binaries.python_modules(story.tiled.id, run) == {"helpers": text.decode()}
    ((of_case,),) = [[built.python] for built in story.store.binaries.of_run(run).values()]
    assert of_case == python
    story.execute("UPDATE artifacts SET content = :blob WHERE kind = 'python'", blob=zlib.compress(EVIL))
    with pytest.raises(UntrustedError, match="is damaged in the database"):
        story.store.binaries.python_modules(story.tiled.id, run)
    story.execute("UPDATE python_codes SET record = replace(record, :old, :new)", old=digest(text), new=digest(BENCH))
    with pytest.raises(UntrustedError, match=r"the Python code of .* was changed in the database"):
        story.store.binaries.python_modules(story.tiled.id, run)
    assert [built.python for built in story.store.binaries.of_run(run).values()] == [None]


def test_a_night_whose_suite_was_changed_in_the_database_is_not_resumed(story):
    begin = {"host": "box", "started": datetime.now(UTC), "command_line": "perfsvc nightly"}
    night = story.store.nights.begin(suite="/mine", settings={"share": 0.05, "list": [1], "text": "ü"}, **begin)
    row = story.store.nights.get(night)
    story.store.nights.require_signed(row)
    for changed in (replace(row, suite="/theirs"), replace(row, settings={"a": 1}), replace(row, host="other")):
        with pytest.raises(UntrustedError, match=f"what night {night} began with was changed"):
            story.store.nights.require_signed(changed)


@pytest.mark.slow
def test_forged_content_of_any_size_does_not_fill_the_memory(story, run):
    """Zeros compress to a thousandth."""
    size = 1 << 27
    story.execute("UPDATE artifacts SET content = :blob", blob=zlib.compress(bytes(size)))
    tracemalloc.start()
    try:
        assert story.store.binaries.modules([digest(CUBIN)]) == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 2
