"""Look for known vulnerabilities in the installed packages (pip-audit), and for risky code in perfsvc (bandit).

    python .ci/audit.py packages
    python .ci/audit.py code

Run it with the Python that has perfsvc and its tools. The output says what was checked and what was not. The exit
status is 0 if nothing was found, 1 if something was, and 75 if ``packages`` found no service that knows
vulnerabilities, so that it checked nothing.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("perfsvc", "migrations", "kernels", ".ci")
"""What bandit reads. The tests start programs and assert, and run on nothing but their own data."""
SERVICES = ("pypi", "osv")
"""Where pip-audit asks for known vulnerabilities; the next service is asked only if the one before knows no package."""
UNCHECKED = 75  # EX_TEMPFAIL

VULNERABILITIES: Mapping[str, str] = {}
"""Known vulnerabilities that do not concern perfsvc, by the number of their advisory, each with the reason."""

RULES: Mapping[str, str] = {
    "B404": "importing subprocess is no risk; B602 to B607 judge its calls",
    "B603": "starting compilers, git and workers is the job; every command is a list, so no shell reads it",
    "B607": "users choose their git and nvcc with PATH; whoever sets PATH can run anything anyway",
    "B405": "ElementTree writes the XML here; parsing with it would be B314",
}
"""Rules of bandit that do not hold for all of perfsvc, each with the reason."""

LINES: Mapping[tuple[str, str], str] = {
    ("B701", "perfsvc/service/schedule/printed.py"): "its templates are units and scripts, in which HTML means nothing",
    ("B105", "perfsvc/cli/__init__.py"): "the help of the command token is no secret",
}
"""Findings of bandit that are no risk where they are, each with the reason.

All others have their reason on their line, as ``noqa: S310 - reason``: Ruff's rule S310 is bandit's B310.
"""


def main() -> int:
    """Check what the command line names; return the exit status."""
    match sys.argv[1:]:
        case ["packages"]:
            return packages(pip_audit(service) for service in SERVICES)
        case ["code"]:
            return code(bandit(), (ROOT / "perfsvc").rglob("*.py"))
    print(__doc__)
    return 2


# --- packages --------------------------------------------------------------------------------------------------------


def pip_audit(service: str) -> tuple[str, str]:
    """Return the service and what pip-audit reports about the installed packages as JSON; no text if it failed."""
    command = ["-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "-f", "json", "-s", service]
    ran = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if not ran.stdout:
        print(f"pip-audit cannot ask {service}: {(ran.stderr.strip().splitlines() or ['no output'])[-1]}")
    return service, ran.stdout


def packages(reports: Iterable[tuple[str, str]]) -> int:
    """Print what the first service that knows any package says; return the exit status.

    pip-audit itself reports success if a service knows no package at all, as a mirror of PyPI does.
    """
    for service, text in reports:
        dependencies = json.loads(text)["dependencies"] if text else []
        checked = [dependency for dependency in dependencies if "vulns" in dependency]
        if not checked:
            print(f"pip-audit: {service} knows none of {len(dependencies)} packages")
            continue
        for dependency in dependencies:
            if "vulns" not in dependency and dependency["name"] != "perfsvc":
                print(f"not checked: {dependency['name']}: {dependency.get('skip_reason', 'unknown')}")
        print(f"pip-audit: {len(checked)} of {len(dependencies)} packages compared with the advisories of {service}")
        return _judge_vulnerabilities(checked)
    print("pip-audit: NOT CHECKED: no service that knows vulnerabilities can be reached")
    return UNCHECKED


def _judge_vulnerabilities(checked: Iterable[Mapping[str, Any]]) -> int:
    status, met = 0, set()
    for dependency in checked:
        for vulnerability in dependency["vulns"]:
            names = {vulnerability["id"], *vulnerability.get("aliases", ())}
            met |= names
            reason = next((VULNERABILITIES[name] for name in names if name in VULNERABILITIES), "")
            fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no version"
            verdict = f"excepted: {reason}" if reason else "VULNERABLE"
            print(f"{dependency['name']} {dependency['version']}: {vulnerability['id']}, mended in {fixed}: {verdict}")
            status = status if reason else 1
    for name in VULNERABILITIES.keys() - met:
        print(f"{name} is excepted, but no package has it any more: remove it from VULNERABILITIES")
        status = 1
    return status


# --- code ------------------------------------------------------------------------------------------------------------


def bandit() -> dict[str, Any]:
    """Return what bandit reports as JSON."""
    command = [sys.executable, "-m", "bandit", "--quiet", "--recursive", "--format", "json", *FOLDERS]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        sys.exit(f"bandit failed:\n{ran.stdout}{ran.stderr}")
    return report


def code(report: Mapping[str, Any], sources: Iterable[Path]) -> int:
    """Print the findings of bandit without a reason; return the exit status.

    Args:
        report: what bandit reports.
        sources: the files in which no comment may silence bandit, because its own comments give no reasons.
    """
    status, used = 0, set()
    for error in report["errors"]:
        print(f"bandit cannot read {error['filename']}: {error['reason']}")
        status = 1
    for finding in report["results"]:
        rule, path = finding["test_id"], finding["filename"].removeprefix("./")
        if rule in RULES:
            used.add(rule)
        elif (rule, path) in LINES:
            used.add((rule, path))
        elif not _has_reason(finding):
            print(f"{path}:{finding['line_number']}: {rule} {finding['issue_text']}")
            status = 1
    for unused in (RULES.keys() | LINES.keys()) - used:
        print(f"{unused} is excepted, but bandit reports it nowhere any more: remove it from .ci/audit.py")
        status = 1
    for path in sources:
        if re.search(r"#\s*nosec", path.read_text(encoding="utf-8")):
            print(f"{path}: nosec gives no reason: write noqa: S… - reason, or except it in .ci/audit.py")
            status = 1
    lines = report["metrics"]["_totals"]["loc"]
    reasons = "not all with a reason" if status else "each with a reason"
    print(f"bandit: {lines} lines of {', '.join(FOLDERS)} checked; {len(report['results'])} findings, {reasons}")
    return status


def _has_reason(finding: Mapping[str, Any]) -> bool:
    """Return whether a line of the finding has Ruff's exception for the same rule, with a reason."""
    number = finding["test_id"].removeprefix("B")
    return any(re.search(rf"# noqa: [A-Z0-9, ]*\bS{number}\b[A-Z0-9, ]* - \w", line) for line in _lines(finding))


def _lines(finding: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a finding."""
    path = ROOT / finding["filename"]
    lines = path.read_text(encoding="utf-8").splitlines()
    yield from (lines[number - 1] for number in finding["line_range"])


if __name__ == "__main__":
    sys.exit(main())
