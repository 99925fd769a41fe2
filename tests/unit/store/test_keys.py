"""The keys of a user, and what the store refuses because no trusted key has signed it."""

import os
import stat
import threading
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from perfsvc.errors import InfrastructureError, UntrustedError, UsageError
from perfsvc.model import Kind, Package, PythonCode, ReplayRecord, digest
from perfsvc.store import CaseCode, Store
from perfsvc.store.keys import Keys, Signed, default_file, fingerprint

FIRST, SECOND = "11" * 32, "22" * 32


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "keys"


def test_the_first_signature_makes_a_key_that_only_its_owner_can_read(file):
    keys = Keys(file)
    assert keys.secrets == ()
    signature = keys.sign(Signed.RECORD, "text")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in file.parent.iterdir()] == ["keys"]
    assert Keys(file).trusts(Signed.RECORD, "text", signature)


def test_reading_makes_no_key(file):
    assert not Keys(file).trusts(Signed.RECORD, "text", "0123456789ab:" + 64 * "0")
    assert not file.parent.exists()


def test_processes_that_begin_at_once_make_one_key(file):
    begin, signing = threading.Barrier(8), []

    def sign():
        begin.wait()
        signing.append(Keys(file).signing())

    threads = [threading.Thread(target=sign) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(signing)) == 1
    assert [entry.name for entry in file.parent.iterdir()] == ["keys"]


@pytest.mark.parametrize(
    ("kind", "text", "change"),
    [
        (Signed.RECORD, "texts", str),
        (Signed.PYTHON, "text", str),
        (Signed.RECORD, "text", lambda signature: signature[:-1] + ("0" if signature[-1] != "0" else "1")),
        (Signed.RECORD, "text", lambda signature: ""),
        (Signed.RECORD, "text", lambda signature: "\ud800 not a signature"),
    ],
    ids=["other text", "other kind", "other code", "none", "noise"],
)
def test_a_signature_is_of_one_text_of_one_kind(file, kind, text, change):
    signature = Keys(file).sign(Signed.RECORD, "text")
    assert not Keys(file).trusts(kind, text, change(signature))


def test_an_added_key_signs_and_the_earlier_one_stays_trusted(file):
    keys = Keys(file)
    before = keys.sign(Signed.RECORD, "text")
    assert keys.add(f"{FIRST}\n") == fingerprint(bytes.fromhex(FIRST))
    assert Keys(file).signing().hex() == FIRST
    assert Keys(file).trusts(Signed.RECORD, "text", before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_removed_key_is_not_trusted_any_more(file):
    keys = Keys(file)
    keys.add(FIRST)
    signature = keys.sign(Signed.RECORD, "text")
    keys.add(SECOND)
    keys.remove(fingerprint(bytes.fromhex(FIRST)))
    assert not Keys(file).trusts(Signed.RECORD, "text", signature)
    with pytest.raises(UsageError, match="you have no key 'abc'"):
        keys.remove("abc")


def test_after_the_last_key_is_removed_the_next_use_makes_another(file):
    keys = Keys(file)
    keys.add(FIRST)
    keys.remove(fingerprint(bytes.fromhex(FIRST)))
    assert not file.exists()
    assert fingerprint(keys.signing()) != fingerprint(bytes.fromhex(FIRST))
    assert Keys(file).signing() == keys.signing()


def test_what_is_no_key_is_not_added(file):
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        Keys(file).add("secret")
    assert not file.exists()


def test_signatures_of_several_hosts_stand_beside_each_other(tmp_path):
    first, second, third = (Keys(tmp_path / name) for name in ("a", "b", "c"))
    signatures = second.sign(Signed.RECORD, "text", first.sign(Signed.RECORD, "text"))
    assert second.sign(Signed.RECORD, "text", signatures) == signatures
    assert first.trusts(Signed.RECORD, "text", signatures)
    assert second.trusts(Signed.RECORD, "text", signatures)
    assert not third.trusts(Signed.RECORD, "text", signatures)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602])
def test_keys_that_other_users_can_read_or_change_are_refused(file, mode):
    Keys(file).signing()
    file.chmod(mode)
    with pytest.raises(InfrastructureError, match="other users may read or change the keys") as raised:
        Keys(file).signing()
    assert f"chmod 600 {file}" in raised.value.cure


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_keys_of_another_user_are_refused(file):
    Keys(file).signing()
    os.chown(file, 12345, 12345)
    with pytest.raises(InfrastructureError, match="belong to another user"):
        Keys(file).signing()


@pytest.mark.parametrize("content", ["11\n", 32 * "AB", "\xff", FIRST + " " + SECOND])
def test_damaged_keys_are_refused(file, content):
    Keys(file).signing()
    file.write_text(content, encoding="latin-1")
    with pytest.raises(InfrastructureError, match="are damaged"):
        Keys(file).signing()


def test_a_folder_that_cannot_be_written_has_a_cure(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="with your keys cannot be") as raised:
        Keys(tmp_path / "file" / "keys").signing()
    assert "PERFSVC_KEYS" in raised.value.cure


def test_the_keys_are_in_the_users_data_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFSVC_KEYS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_file() == tmp_path / "perfsvc" / "keys"


def test_a_user_without_a_home_folder_has_to_name_a_file(monkeypatch):
    monkeypatch.delenv("PERFSVC_KEYS")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a uid without a passwd entry, HOME unset
    with pytest.raises(InfrastructureError, match="there is no place for your keys") as raised:
        default_file()
    assert "PERFSVC_KEYS" in raised.value.cure


# --- what the store refuses, on both databases -----------------------------------------------------------------------

BENCH, CUBIN, EVIL = b"# bench.py", b"\x7fELF", b"import os; os.system('id')"


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


def test_a_benchmark_file_that_was_replaced_in_the_database_is_refused(story, run):
    plant(story, EVIL)
    with pytest.raises(UntrustedError, match="was changed in the database after it was stored"):
        story.store.binaries.replay(story.tiled.id, run)
    assert story.store.binaries.get([1]) == {}


def test_a_forged_signature_helps_nobody(story, run):
    plant(story, EVIL)
    story.execute("UPDATE binaries SET signatures = signatures || ' ' || signatures || ' 000000000000:00'")
    with pytest.raises(UntrustedError, match="was changed"):
        story.store.binaries.replay(story.tiled.id, run)
    story.execute("UPDATE binaries SET signatures = ''")
    with pytest.raises(UntrustedError, match="is not signed"):
        story.store.binaries.replay(story.tiled.id, run)


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
