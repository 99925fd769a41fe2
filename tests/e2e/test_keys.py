"""``perfsvc key``, and two hosts that share a database."""

import io
import stat

import pytest

CASE = "scale/beta[n=100]"
SLOW = {"seconds": 1.05e-4}
USUAL = {"seconds": 1e-4}


@pytest.fixture
def alone(perfsvc):
    """A user who has no key yet."""
    perfsvc.environment["PERFSVC_KEYS"] = str(perfsvc.folder / "data" / "keys")
    return perfsvc


@pytest.fixture
def measured(alone):
    """A slower case, which this user measured and did not confirm."""
    suite = alone.own("scale")
    alone.play({"*": USUAL})
    alone.fake("--replicas", "2", suite=suite, code=0)
    old = [digest for (digest,) in alone.rows("select distinct sha256 from binary_files")]
    alone.rebuild(suite)
    alone.play({"*": USUAL, "scale/beta": SLOW, **dict.fromkeys(old, USUAL)})
    alone.fake("--replicas", "2", suite=suite, code=1)
    return alone


def confirm(perfsvc, code):
    return perfsvc("confirm", CASE, "--device", f"fake:{perfsvc.script}", code=code)


def test_a_user_alone_needs_no_set_up(measured):
    file = measured.folder / "data" / "keys"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    confirm(measured, code=1)
    (name,) = measured("key", "list", "--format", "json", code=0).json["keys"]
    assert f"{name}  signs" in measured("key", "list", code=0).out


@pytest.mark.quick
def test_commands_that_only_read_make_no_key(alone):
    assert "there is no key yet" in alone("key", "list", code=0).out
    alone("runs", code=5)
    assert not (alone.folder / "data").exists()


def test_a_laptop_runs_the_code_of_a_team_once_it_has_the_key(measured, monkeypatch):
    key = measured("key", "show", code=0).out
    measured.environment["PERFSVC_KEYS"] = str(measured.folder / "laptop" / "keys")
    ended = confirm(measured, code=5)
    assert "which you do not trust" in ended.out + ended.err
    assert "perfsvc key add" in ended.out + ended.err
    monkeypatch.setattr("sys.stdin", io.StringIO(key))
    assert "is trusted, and signs from now on" in measured("key", "add", code=0).out
    confirm(measured, code=1)
    (name,) = measured("key", "list", "--format", "json", code=0).json["keys"]
    measured("key", "remove", name, code=0)
    confirm(measured, code=5)


def test_without_a_place_for_a_key_nothing_is_measured(alone):
    (alone.folder / "data").touch()
    alone.play({"*": USUAL})
    ended = alone.fake(code=5)
    assert "set PERFSVC_KEYS" in ended.err
    assert alone.rows("select * from runs") == []


@pytest.mark.quick
def test_a_key_that_is_none_is_refused(alone, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert "64 hexadecimal digits" in alone("key", "add", code=2).err
