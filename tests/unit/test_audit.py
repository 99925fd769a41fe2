"""CI finds a vulnerability and risky code, and never says that it checked what it did not check."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDING = {"test_id": "B602", "filename": "risky.py", "line_number": 2, "line_range": [1, 2], "issue_text": "a shell"}


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(*dependencies):
    return json.dumps({"dependencies": dependencies})


UNKNOWN = {"name": "numpy", "skip_reason": "not found"}
SAFE = {"name": "click", "version": "8", "vulns": []}
FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2"]}
VULNERABLE = {"name": "jinja2", "version": "1", "vulns": [FLAW]}


def test_the_next_service_is_asked_if_the_first_knows_nothing(audit, capsys):
    assert audit.packages([("pypi", report(UNKNOWN)), ("osv", "")]) == audit.UNCHECKED
    printed = capsys.readouterr().out
    assert "pypi knows none of 1 packages" in printed
    assert "NOT CHECKED" in printed
    assert audit.packages([("pypi", report(UNKNOWN)), ("osv", report(SAFE, UNKNOWN))]) == 0
    printed = capsys.readouterr().out
    assert "1 of 2 packages compared with the advisories of osv" in printed
    assert "not checked: numpy" in printed


def test_a_vulnerability_fails_unless_it_is_excepted_and_an_exception_without_one_fails(audit, capsys):
    assert audit.packages([("pypi", report(SAFE, VULNERABLE))]) == 1
    assert "jinja2 1: PYSEC-1, mended in 2: VULNERABLE" in capsys.readouterr().out
    audit.VULNERABILITIES = {"CVE-1": "no template of strangers is rendered"}
    assert audit.packages([("pypi", report(SAFE, VULNERABLE))]) == 0
    assert "excepted: no template" in capsys.readouterr().out
    assert audit.packages([("pypi", report(SAFE))]) == 1  # an exception for nothing


STATUS = {
    "run(text, shell=True)": 1,
    "run(text, shell=True)  # noqa: S602": 1,
    "run(text, shell=True)  # noqa: S603 - a list": 1,
    "run(text, shell=True)  # noqa: S602 - the text is ours": 0,
    "run(text, shell=True)  # noqa: PLW1510, S602 - the text is ours": 0,
    "run(text, shell=True)  # nosec": 1,
}


def test_a_finding_of_bandit_needs_a_reason_for_its_own_rule(audit, tmp_path):
    audit.ROOT, audit.RULES, audit.LINES = tmp_path, {}, {}
    risky, status = tmp_path / "risky.py", {}
    for line in STATUS:
        risky.write_text(f"import subprocess\n{line}\n")
        found = {"errors": [], "results": [FINDING], "metrics": {"_totals": {"loc": 2}}}
        status[line] = audit.code(found, [risky])
    assert status == STATUS


def test_an_exception_that_bandit_needs_no_more_and_a_file_that_it_cannot_read_fail(audit):
    audit.RULES, audit.LINES = {"B999": "once"}, {}
    found = {"errors": [], "results": [], "metrics": {"_totals": {"loc": 0}}}
    assert audit.code(found, []) == 1
    audit.RULES = {}
    assert audit.code(found, []) == 0
    assert audit.code({**found, "errors": [{"filename": "x.py", "reason": "syntax"}]}, []) == 1


def test_every_exception_has_a_reason(audit):
    reasons = [*audit.VULNERABILITIES.values(), *audit.RULES.values(), *audit.LINES.values()]
    assert all(len(reason.split()) > 3 for reason in reasons)
