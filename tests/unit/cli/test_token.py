"""``perfsvc token`` on a server that has no run of its own."""

from click.testing import CliRunner

from perfsvc.cli import cli
from perfsvc.store import Scope, Store


def test_the_first_token_makes_the_database(tmp_path):
    database = tmp_path / "hub.db"
    result = CliRunner().invoke(cli, ["token", "create", "box-1", "--scope", "write", "--db", str(database)])
    assert result.exit_code == 0, result.output
    secret = result.stdout.split()[0]
    with Store.open(database, create=False, read_only=True) as store:
        token = store.tokens.of_secret(secret)
        assert token is not None
        assert (token.name, token.scopes) == ("box-1", (Scope.WRITE,))
