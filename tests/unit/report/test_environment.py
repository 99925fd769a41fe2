"""The words for what differs between the environments of two runs."""

from perfsvc.model import Difference, FullEnvironment
from perfsvc.report.export.objects import comparison_json
from perfsvc.report.rows import (
    MOST_DIFFERENCES,
    ComparedRun,
    EnvironmentDifferences,
    difference_lines,
    heading,
    value_change,
)
from perfsvc.report.tables.comparison import comparison_table
from perfsvc.report.tables.history import differences_table, environment_table
from tests.unit.report.terminal import show

ECC = Difference("gpu.ecc", "on", "off", ("GPU-1", "GPU-2"))


def test_a_difference_shows_both_values_and_its_devices():
    cases = [
        (ECC, "on → off (GPU-1, GPU-2)"),
        (Difference("host.kernel", "6.1", "6.2"), "6.1 → 6.2"),
        (Difference("host.cpu_limit", None, "2"), "unknown → 2"),
        (Difference("variable.CUDA_X", None, ""), "unset → empty"),
        (Difference("variable.CUDA_X", "1", None), "1 → unset"),
    ]
    assert [value_change(difference) for difference, _ in cases] == [words for *_, words in cases]


def test_many_differences_are_counted_and_their_command_is_named():
    many = tuple(Difference(f"variable.CUDA_{number:02}", "1", "2") for number in range(MOST_DIFFERENCES + 3))
    changes = EnvironmentDifferences(7, 9, many)
    lines = list(difference_lines(changes))
    assert len(lines) == MOST_DIFFERENCES + 1
    assert lines[-1] == "and 3 more: perfsvc runs environment 7 9"
    assert len(list(difference_lines(changes, None))) == len(many)
    assert len(show(differences_table(changes)).splitlines()) == len(many) + 1
    assert heading(changes) == "23 differences of the environment since run 7"


def test_a_comparison_without_a_known_environment_says_nothing_of_it():
    new = ComparedRun("9", 9)
    assert "environment" not in show(comparison_table(None, new, []))
    assert "environment" not in show(comparison_table(None, new, [], environment=EnvironmentDifferences(7, 9, ())))
    assert comparison_json(None, new, [])["environment"] is None
    found = comparison_json(None, new, [], environment=EnvironmentDifferences(7, 9, (ECC,)))["environment"]
    assert found["differences"] == [{"name": "gpu.ecc", "before": "on", "after": "off", "devices": ["GPU-1", "GPU-2"]}]


def test_an_environment_lists_what_devices_share_and_then_each_device():
    full = FullEnvironment({"host.kernel": "6.1"}, {"GPU-1": {"gpu.ecc": "on"}, "GPU-2": {}})
    lines = [line.split() for line in show(environment_table(3, full)).splitlines()]
    assert [words for words in lines if words] == [
        ["run", "3"],
        ["host.kernel", "6.1"],
        ["GPU-1"],
        ["gpu.ecc", "on"],
        ["GPU-2"],
    ]
