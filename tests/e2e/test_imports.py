"""What the short commands import: most of their time is Python's imports, so each import has to be needed."""

import json
import subprocess
import sys

import pytest

MODULES = """
import json, sys
from perfsvc.cli import main
sys.argv = ["perfsvc", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
NEVER = {
    "alembic",
    "perfsvc.config",
    "perfsvc.report.export.files",
    "perfsvc.suite",
    "pydantic_settings",
    "scipy",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
}
"""What no command imports that only shows results of a SQLite database, without a perfsvc.toml."""
COMMANDS = {
    ("runs",): {"numpy", "pandas", "pydantic", "perfsvc.store.series", "perfsvc.store.findings"},
    ("show", "scale/alpha"): {"pandas", "pydantic", "perfsvc.store.findings"},
    ("compare", "latest~1", "latest"): {"pandas", "pydantic"},
    ("report", "latest"): {"pydantic", "perfsvc.store.findings"},
}
"""What else each command does not import."""


@pytest.fixture(scope="module")
def place(new_workplace):
    """A workplace with two runs."""
    workplace = new_workplace()
    for _ in range(2):
        workplace.play({"*": {"seconds": 1e-4}})
        workplace.fake("--replicas", "2")
    return workplace


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_that_shows_results_imports_only_what_it_needs(place, arguments):
    ended = subprocess.run(
        [sys.executable, "-c", MODULES, *arguments],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(json.loads(ended.stderr))
    assert "perfsvc.store" in imported
    assert imported & (NEVER | COMMANDS[arguments]) == set()
