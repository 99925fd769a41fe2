import tracemalloc
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.errors import DamagedError, DatabaseError, NotMeasuredError, UntrustedError, UsageError
from perfsvc.keys import Keys, Signed
from perfsvc.model import (
    Array,
    Buffer,
    BufferArg,
    CacheState,
    Kind,
    Launch,
    Memset,
    Package,
    PythonCode,
    ReplayRecord,
    Role,
    ScalarArg,
    digest,
)
from perfsvc.model.codec import encode
from perfsvc.store import CaseCode, Store
from tests.unit.store.conftest import BENCH, ON_BOTH

CUBIN, OTHER = b"\x7fELF one", b"\x7fELF two"


@pytest.fixture
def record(story):
    launch = Launch(0, "transpose", (128, 128, 1), (32, 8, 1), (BufferArg("out"), ScalarArg("n", "int32", 4096)))
    return ReplayRecord(
        case=story.tiled,
        kind=Kind.KERNEL,
        buffers=(Buffer(Array("out", "float32", (4096, 4096)), Role.OUTPUT),),
        steps=(Memset("out", 255), launch),
        modules=(digest(CUBIN), digest(OTHER), digest(CUBIN)),
        bench=digest(BENCH),
        seed=7,
    )


@pytest.fixture
def binary(story, record):
    modules = {digest(CUBIN): CUBIN, digest(OTHER): OTHER}
    return story.put_binary(record, modules, BENCH, {"transpose.cu": b"__global__ void transpose();"})


@ON_BOTH
def test_a_binary_is_read_as_it_was_stored_and_an_equal_record_is_stored_once(story, record, binary):
    run = story.begin()
    story.put(run, story.tiled, binary=binary)
    assert story.store.binaries.replay(story.tiled.id, run) == (
        record,
        {digest(CUBIN): CUBIN, digest(OTHER): OTHER},
        BENCH,
    )
    assert story.put_binary(record, {digest(CUBIN): CUBIN, digest(OTHER): OTHER}, BENCH, {}) == binary
    assert story.execute("SELECT count(*) FROM artifacts") == [(4,)]


def test_a_record_that_cannot_be_decoded_is_damaged(story, record):
    text = encode(record).decode()
    insert = "INSERT INTO binaries (id, digest, record, signatures) VALUES (:id, :digest, :record, :signatures)"
    for number, (old, new) in enumerate([('"step":"launch"', '"step":"dance"'), ('{"case":', '{"kase":')]):
        assert old in text
        spelled = text.replace(old, new)
        signed = story.store.binaries._keys.sign(Signed.RECORD, spelled)
        story.execute(insert, id=number, digest=f"odd {number}", record=spelled, signatures=signed)
        with pytest.raises(DamagedError):
            story.store.binaries.get([number])


def test_bytes_must_have_the_digest_that_the_record_names(story, record):
    with pytest.raises(ValueError, match="has other bytes than its digest says"):
        story.put_binary(record, {digest(CUBIN): OTHER, digest(OTHER): OTHER}, BENCH, {})
    assert story.execute("SELECT count(*) FROM artifacts") == [(0,)]


def test_a_case_with_a_binary_for_each_of_two_devices_needs_the_device_and_one_without_is_an_error(
    story, record, binary
):
    other = replace(record, modules=(digest(OTHER),))
    second = story.put_binary(other, {digest(OTHER): OTHER}, BENCH, {})
    run = story.begin()
    story.put(run, story.tiled, binary=binary)
    story.put(run, story.tiled, binary=second, device="GPU-2")
    with pytest.raises(UsageError, match="several binaries"):
        story.store.binaries.replay(story.tiled.id, run)
    assert story.store.binaries.replay(story.tiled.id, run, device="GPU-2")[0] == other
    run = story.run()
    with pytest.raises(NotMeasuredError, match=f"run {run} holds no binary of transpose/tiled"):
        story.store.binaries.replay(story.tiled.id, run)


@ON_BOTH
def test_a_damaged_artifact_or_replay_record_is_an_error(story, binary):
    run = story.begin()
    story.put(run, story.tiled, binary=binary)
    for damage in (bytes.fromhex("789c030000000001"), b"\0"):  # other bytes, and no zlib
        story.execute("UPDATE artifacts SET content = :damage", damage=damage)
        with pytest.raises(DatabaseError, match="is damaged"):
            story.store.binaries.replay(story.tiled.id, run)
    story.execute("UPDATE binaries SET record = 'half a rec'")
    with pytest.raises(UntrustedError, match=r"the code of .* was changed in the database"):
        story.store.binaries.replay(story.tiled.id, run)


def test_source_lines_are_stored_with_a_new_binary_and_with_a_known_one(story, binary):
    run = story.begin()
    story.put(run, story.tiled, binary=binary)
    record, modules, bench = story.store.binaries.replay(story.tiled.id, run)
    assert story.store.binaries.files(binary, "lines") == {}
    code = CaseCode(record, modules, bench, {}, {digest(CUBIN): b'{"a table"}'})
    assert story.store.binaries.put([code, code]) == [binary, binary]
    assert story.store.binaries.files(binary, "lines") == {digest(CUBIN): b'{"a table"}'}
    assert story.store.binaries.files(binary, "source") == {"transpose.cu": b"__global__ void transpose();"}
    (other,) = story.store.binaries.put([replace(code, record=replace(record, seed=9))])
    assert story.store.binaries.files(other, "lines") == {digest(CUBIN): b'{"a table"}'}
    story.execute("UPDATE artifacts SET content = :content WHERE kind = 'lines'", content=b"no zlib")
    assert story.store.binaries.files(binary, "lines") == {}


@ON_BOTH
def test_deleting_a_run_deletes_its_measurements_and_keeps_binaries_and_a_pinned_run_cannot_be_deleted(story, binary):
    run = story.begin()
    story.put(run, story.tiled, binary=binary, metrics={"overlap": 1.0})
    story.execute("DELETE FROM runs")
    for table, rows in {"measurements": 0, "metrics": 0, "binaries": 1, "cases": 1}.items():
        assert story.execute(f"SELECT count(*) FROM {table}") == [(rows,)]  # noqa: S608 - names of this test
    run = story.run()
    story.store.baselines.pin(run, [story.series(story.tiled)])
    with pytest.raises(DatabaseError, match="refused a row"):
        story.execute("DELETE FROM runs")


def test_the_binaries_of_cases_are_read_for_these_cases_and_runs_only(story, record, binary):
    modules = {digest(CUBIN): CUBIN, digest(OTHER): OTHER}
    changed = story.put_binary(replace(record, seed=8), modules, BENCH, {})
    runs = [story.begin() for _ in range(5)]
    for run, ran in zip(runs, (binary, changed, None, binary), strict=False):
        for replica in range(2):
            story.put(run, story.tiled, replica=replica, binary=ran)
        story.put(run, story.naive, binary=changed)
    story.put(runs[3], story.tiled, replica=2, binary=changed)
    tiled, naive = (("GPU-1", case, CacheState.COLD) for case in (story.tiled, story.naive))
    elsewhere = ("GPU-2", story.tiled, CacheState.COLD)
    unheard = ("GPU-1", replace(story.tiled, variant="unheard of"), CacheState.COLD)
    assert story.store.binaries.used([tiled], runs) == {tiled: {runs[0]: binary, runs[1]: changed}}
    assert story.store.binaries.used([tiled], runs[1:2]) == {tiled: {runs[1]: changed}}
    assert story.store.binaries.used([elsewhere], runs) == {elsewhere: {}}
    assert story.store.binaries.used([unheard], runs) == {}
    assert story.store.binaries.used([tiled, naive], runs[:1]) == {tiled: {runs[0]: binary}, naive: {runs[0]: changed}}


# --- what no trusted key has signed ----------------------------------------------------------------------------------


ELF, EVIL = b"\x7fELF", b"import os; os.system('id')"


@pytest.fixture
def code(story):
    record = ReplayRecord(story.tiled, Kind.KERNEL, (), (), (digest(ELF),), digest(BENCH), seed=7)
    return CaseCode(record, {digest(ELF): ELF}, BENCH, {})


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
    assert elsewhere.binaries.get([1]) == {}


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
    assert story.store.binaries.get([1]) == {}
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
    assert story.store.binaries.replay(story.tiled.id, run) == (code.record, {digest(ELF): ELF}, BENCH)


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
        assert story.store.binaries.modules([digest(ELF)]) == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 2
