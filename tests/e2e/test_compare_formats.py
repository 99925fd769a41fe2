"""What a comparison prints for a pull request and for a CI server."""

from xml.etree import ElementTree as ET

import pytest


@pytest.fixture
def compared(perfsvc):
    """Compares a night with one on which a case was slower, in a format; its code changed, too."""
    suite = perfsvc.own("scale")
    for seconds in (1e-4, 1.05e-4):
        perfsvc.play({"*": {"seconds": 1e-4}, "scale/alpha": {"seconds": seconds}})
        perfsvc.fake("--replicas", "2", suite=suite)
        perfsvc.rebuild(suite)
    return lambda output_format: perfsvc("compare", "1", "2", "--format", output_format, code=1).out


def test_a_pull_request_comment_starts_with_the_changes(compared):
    text = compared("github")
    assert text.startswith("### 1 regression, ")
    assert "| **regression** | `scale/alpha[n=100]` | +5.0 % |" in text.partition("<details>")[0]


def test_a_ci_server_sees_the_regression_fail(compared):
    root = ET.fromstring(compared("junit"))  # noqa: S314 - our own
    assert [test.get("name") for test in root.iter("testcase") if test.find("failure") is not None] == [
        "scale/alpha[n=100]"
    ]
