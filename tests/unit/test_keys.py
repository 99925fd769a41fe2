"""The keys of a user: the file, its permissions, and signatures."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perfsvc.errors import InfrastructureError, UsageError
from perfsvc.keys import Keys, Signed, default_file, fingerprint

FIRST, SECOND = "11" * 32, "22" * 32


@pytest.fixture
def file(tmp_path):
    return tmp_path / "data" / "keys"


def test_the_first_signature_makes_a_key_that_only_its_owner_can_read(file):
    keys = Keys(file)
    assert not keys.trusts(Signed.RECORD, "text", "0123456789ab:" + 64 * "0")
    assert keys.secrets == ()
    assert not file.parent.exists()
    signature = keys.sign(Signed.RECORD, "text")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in file.parent.iterdir()] == ["keys"]
    assert Keys(file).trusts(Signed.RECORD, "text", signature)


def test_threads_that_begin_at_once_make_one_key(file):
    begin = threading.Barrier(8)

    def signing(_):
        begin.wait()
        return Keys(file).signing()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(signing, range(8)))) == 1
    assert [entry.name for entry in file.parent.iterdir()] == ["keys"]


def test_a_signature_is_of_one_text_of_one_kind(file):
    signature = Keys(file).sign(Signed.RECORD, "text")
    other = signature[:-1] + ("0" if signature[-1] != "0" else "1")
    assert not Keys(file).trusts(Signed.RECORD, "texts", signature)
    assert not Keys(file).trusts(Signed.PYTHON, "text", signature)
    assert not any(Keys(file).trusts(Signed.RECORD, "text", wrong) for wrong in (other, "", "\ud800 no signature"))


def test_an_added_key_signs_and_the_earlier_one_stays_trusted_until_it_is_removed(file):
    keys = Keys(file)
    before = keys.sign(Signed.RECORD, "text")
    assert keys.add(f"{FIRST}\n") == fingerprint(bytes.fromhex(FIRST))
    assert Keys(file).signing().hex() == FIRST
    assert Keys(file).trusts(Signed.RECORD, "text", before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
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


def test_keys_that_other_users_can_read_or_change_are_refused(file):
    Keys(file).signing()
    for mode in (0o604, 0o620, 0o602):
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


def test_damaged_keys_are_refused(file):
    Keys(file).signing()
    for content in ("11\n", 32 * "AB", "\xff", FIRST + " " + SECOND):
        file.write_text(content, encoding="latin-1")
        with pytest.raises(InfrastructureError, match="are damaged"):
            Keys(file).signing()


def test_a_folder_that_cannot_be_written_has_a_cure(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="with your keys cannot be") as raised:
        Keys(tmp_path / "file" / "keys").signing()
    assert "PERFSVC_KEYS" in raised.value.cure


def test_the_keys_are_in_the_users_data_folder_or_in_a_file_that_a_user_without_a_home_names(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFSVC_KEYS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_file() == tmp_path / "perfsvc" / "keys"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a uid without a passwd entry, HOME unset
    with pytest.raises(InfrastructureError, match="there is no place for your keys") as raised:
        default_file()
    assert "PERFSVC_KEYS" in raised.value.cure
