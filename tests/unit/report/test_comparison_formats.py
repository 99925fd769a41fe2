"""A comparison as a comment on a pull request and for a CI server."""

import csv
from dataclasses import replace
from xml.etree import ElementTree as ET

from perfsvc.model import Case, Cause, Judgement, Series, Verdict
from perfsvc.report.export.comparison_formats import (
    CSV_COLUMNS,
    MOST_ROWS,
    comparison_csv,
    comparison_junit,
    comparison_markdown,
)
from perfsvc.report.export.objects import comparison_json
from perfsvc.report.rows import ComparedRun
from perfsvc.text import code

SERIES = Series(Case("transpose", "tiled_TILE32", (("n", 64),)), "GPU-1", "NVIDIA H200")
CHANGE = {"ratio": 1.05, "low": 1.04, "high": 1.06, "baseline_s": 1e-4, "candidate_s": 1.05e-4}
SLOWER = Judgement(SERIES, Verdict.REGRESSION, "beyond the threshold of 3 %", **CHANGE, cause=Cause.KERNEL)
SAME = replace(SLOWER, verdict=Verdict.UNCHANGED, reason="", ratio=1.0, cause=None)
BASE = ComparedRun("main", 5, "", "9f8e7d6c5b4a")
NEW = ComparedRun("HEAD", 7, "", "1a2b3c4d5e6f", dirty=True)


def of(variant, judgement=SAME, **given):
    series = replace(SERIES, case=replace(SERIES.case, variant=variant))
    return replace(judgement, series=series, **given)


def markdown(*judgements, base=BASE):
    return comparison_markdown(base, NEW, judgements)


def junit(judgements):
    return ET.fromstring(comparison_junit(judgements))  # noqa: S314 - our own


def test_the_commands_that_confirm_a_change_are_listed():
    commands = [f"perfsvc confirm 'transpose/v[n={n}]' --run 7" for n in range(7)]
    text = comparison_markdown(BASE, NEW, [SLOWER], commands=commands)
    assert "measure what is unconfirmed again in A/B pairs:\n\n- `perfsvc confirm 'transpose/v[n=0]' --run 7`\n" in text
    assert "`perfsvc confirm 'transpose/v[n=4]' --run 7`\n- … and 2 more commands\n" in text
    assert "v[n=5]" not in text
    assert comparison_json(BASE, NEW, [SLOWER], commands=commands)["confirm"] == commands


def test_changed_series_stand_in_a_table_with_reasons_and_the_rest_is_folded():
    text = markdown(SLOWER, of("naive"), of("padded", verdict=Verdict.INCONCLUSIVE, low=0.99, high=1.03))
    shown, _, folded = text.partition("<details><summary>1 unchanged, 1 inconclusive</summary>")
    assert shown.startswith("### 1 regression, 0 improvements, 1 unchanged, 1 inconclusive\n")
    assert "1a2b3c4d5 with uncommitted changes, against main = run 5, 9f8e7d6c5" in shown
    of_change = "| +5.0 % | +4.0 % to +6.0 % | 100.0 µs | 105.0 µs | kernel |\n"
    assert f"| **regression** | `transpose/tiled_TILE32[n=64]` {of_change}" in shown
    assert "- regression transpose/tiled_TILE32&#91;n=64&#93;: beyond the threshold of 3 %\n" in shown
    assert "transpose/padded&#91;n=64&#93; (up to 3 % slower or 1 % faster)\n" in shown
    assert [line.split(" | ")[0] for line in folded.splitlines() if "`" in line] == ["| unchanged", "| inconclusive"]
    text = markdown(SLOWER, base=None)
    assert "<details>" not in text
    assert "against the baseline of each series" in text
    before, _, folded = markdown(SAME).partition("<details>")
    assert "|" not in before
    assert "unchanged" in folded
    text = markdown(SLOWER, replace(SLOWER, series=replace(SERIES, device="GPU-2", device_model="NVIDIA H100")))
    assert "| verdict | case | device |" in text
    assert "| NVIDIA H100 |" in text


def test_names_and_reasons_are_escaped():
    for evil in ["<img src=x onerror=alert(1)>", "**bold** @everyone #1", "a|b", "[link](http://x)"]:
        text = markdown(of("tiled", SLOWER, reason=evil), of(evil, SLOWER))
        row = next(line for line in text.splitlines() if line.startswith("| **regression** | `transpose/" + evil[:1]))
        assert f"`transpose/{evil}[n=64]`".replace("|", "\\|") in row, evil
        notes = "\n".join(line for line in text.splitlines() if line.startswith("- "))
        assert not set("<>*@#[]") & set(notes.replace("&#", "")), evil
    assert code("a`b<i>") == "<code>a&#96;b&#60;i&#62;</code>"


def test_a_comment_is_never_longer_than_github_accepts():
    many = [of(f"v{number}", SLOWER, reason=f"{number} {'`<long>` ' * 1000}") for number in range(1000)]
    text = markdown(*many, *(of(f"u{number}") for number in range(1000)))
    assert len(text) < 65_536
    assert f"… and {1000 - MOST_ROWS} more series" in text
    assert "more reasons" in text


def test_junit_fails_what_fails_the_command():
    for verdict, cause, kind in [
        (Verdict.REGRESSION, Cause.KERNEL, "failure"),
        (Verdict.REGRESSION, Cause.UNCONFIRMED, "failure"),
        (Verdict.REGRESSION, Cause.ENVIRONMENT, "system-out"),
        (Verdict.BROKEN, None, "failure"),
        (Verdict.MISSING, None, "failure"),
        (Verdict.IMPROVEMENT, Cause.KERNEL, "system-out"),
        (Verdict.NEW, None, "system-out"),
    ]:
        (test,) = junit([replace(SLOWER, verdict=verdict, cause=cause)]).iter("testcase")
        assert [element.tag for element in test] == [kind], (verdict, cause, kind)


def test_junit_of_a_comparison_replaces_characters_that_xml_forbids():
    reason = "a \x1b[31mred\x1b[0m word\nand <more>"
    (failure,) = junit([replace(SLOWER, verdict=Verdict.BROKEN, reason=reason)]).iter("failure")
    assert failure.get("message") == "a ␛[31mred␛[0m word"
    assert failure.text == "a ␛[31mred␛[0m word\nand <more>"


# --- CSV -------------------------------------------------------------------------------------------------------------


def csv_rows(judgements, thresholds=()):
    return list(csv.DictReader(comparison_csv(judgements, dict(thresholds)).splitlines()))


def test_csv_has_a_row_for_each_series_without_rounding_and_leaves_unknown_values_empty():
    exact = replace(SLOWER, ratio=1.0512345678901234, baseline_run=5)
    broken = of("naive", verdict=Verdict.BROKEN, ratio=None, low=None, high=None, reason="it crashed")
    first, second = csv_rows([exact, broken], [(SERIES, 0.03)])
    assert tuple(first) == CSV_COLUMNS
    assert (first["verdict"], first["cause"], first["ratio"]) == ("regression", "kernel", "1.0512345678901234")
    assert (first["case"], first["point"]) == ("transpose/tiled_TILE32[n=64]", "n=64")
    assert (first["threshold"], first["baseline_run"]) == ("0.03", "5")
    assert (second["verdict"], second["reason"]) == ("broken", "it crashed")
    assert second["ratio"] == second["threshold"] == ""
    (row,) = csv_rows([replace(SLOWER, cause=Cause.NOISE)])
    assert row["verdict"] == row["cause"] == "noise"


def test_a_text_in_csv_is_no_formula_and_has_no_hidden_sign():
    for text in ["=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-2+3", "\tx", "\x1b[2J", "\u202eexe"]:
        hostile = replace(of("x", reason=text), series=replace(SERIES, case=Case(text, text), device_model=text))
        (row,) = csv_rows([hostile])
        values = [row[name] for name in ("benchmark", "variant", "case", "device_model", "reason")]
        assert not [value for value in values if value[0] in "=+-@\t" or set(value) & set("\x1b\u202e")], text
