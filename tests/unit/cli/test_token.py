"""``perfsvc token`` on a server that has no run of its own."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from perfsvc.cli import cli
from perfsvc.errors import UsageError
from perfsvc.store import Store
from perfsvc.store.remote.rows import AuditEntry, Scope


@pytest.fixture
def token(tmp_path):
    """Return a function that runs ``perfsvc token`` on a database, and returns what it prints."""

    def run(*arguments, code=0):
        result = CliRunner().invoke(cli, ["token", *arguments, "--db", str(tmp_path / "hub.db")])
        assert result.exit_code == code, result.output
        return result

    return run


def test_the_first_token_makes_the_database_is_shown_once_and_listed_without_its_secret(token, tmp_path):
    made = token("create", "jane", "--scope", "read", "--scope", "act", "--expires", "30d")
    assert "jane may read and act, until 20" in made.stderr
    secret = made.stdout.strip()
    assert secret.startswith("perfsvc_")
    listed = token("list").stdout
    assert "jane" in listed
    assert secret not in listed
    (row,) = json.loads(token("list", "--format", "json").stdout)
    assert (row["name"], row["scopes"], row["revoked"]) == ("jane", ["read", "act"], None)
    assert secret not in json.dumps(row)
    with Store.open(tmp_path / "hub.db", create=False, read_only=True) as store:
        stored = store.tokens.of_secret(secret)
    assert (stored.name, stored.scopes) == ("jane", (Scope.READ, Scope.ACT))


def test_json_has_the_secret_of_a_new_token_whose_name_is_valid_and_not_taken(token, tmp_path):
    made = json.loads(token("create", "box-1", "--scope", "write", "--format", "json").stdout)
    with Store.open(tmp_path / "hub.db", create=False, read_only=True) as store:
        assert store.tokens.of_secret(made["token"]).name == "box-1"
    for name, error in (("two words", "write at most 64 letters"), ("box-1", "another name")):
        refused = token("create", name, "--scope", "write", code=1)
        assert error in refused.exception.cure
        assert isinstance(refused.exception, UsageError)


def test_a_revoked_token_stays_in_the_list(token):
    token("create", "box-1", "--scope", "write")
    assert "box-1 is revoked since 20" in token("revoke", "box-1").stdout
    assert "revoked" in token("list").stdout
    first = json.loads(token("list", "--format", "json").stdout)[0]["revoked"]
    assert json.loads(token("revoke", "box-1", "--format", "json").stdout)["revoked"] == first
    missing = token("revoke", "box-9", code=1)
    assert "there is no token 'box-9'" in str(missing.exception)


def test_the_log_shows_the_newest_entries_and_is_pruned_by_age(token, tmp_path):
    token("create", "box-1", "--scope", "write")
    assert token("log").stdout == "nothing was changed through the server\n"
    now = datetime.now(UTC)
    with Store.open(tmp_path / "hub.db") as store:
        for days, target in ((400, "finding 1"), (2, "finding 2"), (1, "finding 3")):
            at = now - timedelta(days=days)
            store.audit.put(AuditEntry(at, "jane", "accept", target, "10.0.0.7", 303, ""))
    shown = json.loads(token("log", "--limit", "2", "--format", "json").stdout)
    assert [entry["target"] for entry in shown] == ["finding 3", "finding 2"]
    pruned = ["db", "prune", "--audit", "365d", "--db", str(tmp_path / "hub.db")]
    for more, kept in ((["--dry-run"], 3), ([], 2)):
        result = CliRunner().invoke(cli, [*pruned, *more])
        assert result.exit_code == 0, result.output
        assert "1 entry" in result.stdout or "1 audit" in result.stdout, result.stdout
        assert len(json.loads(token("log", "--format", "json").stdout)) == kept
    table = token("log").stdout
    assert "finding 3" in table
    assert "finding 1" not in table
