"""The cases of a finding in groups of the same reason at the same line."""

from dataclasses import replace
from datetime import UTC, datetime

from perfsvc.model import (
    CacheState,
    Case,
    CaseExplanation,
    Cause,
    Finding,
    FindingState,
    HotLine,
    MovedSeries,
    Reason,
    ReasonKind,
    Series,
    SourceLine,
)
from perfsvc.report import finding_words
from perfsvc.report.explanations import explanation_groups, group_lines, short_why
from perfsvc.report.export.objects import finding_json
from perfsvc.report.tables.findings import MOST_GROUPS, finding_table, findings_table
from tests.unit.report.terminal import show

AT = datetime(2026, 1, 2, tzinfo=UTC)
SPILLS, CONFLICTS = ReasonKind.SPILLS, ReasonKind.BANK_CONFLICTS


def moved(variant, ratio, explanation=None, *, device="GPU-1", benchmark="transpose", **given):
    series = Series(Case(benchmark, variant, ()), device, "NVIDIA H100")
    return MovedSeries(series, ratio, ratio, ratio, 1, 1e-4, 1e-4, 2, explanation=explanation, **given)


def explained(variant, ratio, kind=CONFLICTS, line=31, *, file="tile.cuh", factor=2.0, follows=None, **given):
    place = None if file is None else SourceLine(file, line)
    where = (HotLine(1.0, "@!P0 LDS.U R2, [R4]", source=place),) if line else ()
    elsewhere = (HotLine(1.0, "LDS R2, [R4]", source=SourceLine("other.cu", 1)),)
    sides = {"after": where, "before": elsewhere} if factor > 1 else {"before": where, "after": elsewhere}
    reasons = (Reason(kind, 1.0, "1 → 2", **sides),)
    series = moved(variant, ratio, **given)
    sentence = f"{ratio:.1f} × slower: because of {variant}."
    why = CaseExplanation(series.series.case, "GPU-1", "NVIDIA H100", 1, 2, sentence, reasons, factor)
    return replace(series, explanation=why)


def failed(variant, reason, ratio=2.0, **given):
    series = moved(variant, ratio, **given)
    return replace(series, explanation=CaseExplanation(series.series.case, "GPU-1", "H100", 1, 2, reason=reason))


def finding(*series):
    return Finding(7, Cause.KERNEL, "a..b", 2, 2, FindingState.OPEN, "it stayed", "", "", AT, series)


def texts(*series):
    return [group.text for group in explanation_groups(finding(*series))]


def drawn(renderable):
    return [line.rstrip() for line in show(renderable, 200).splitlines()]


def test_cases_with_the_same_reason_at_the_same_line_are_a_group_and_the_worst_group_comes_first():
    many = [explained(f"v{number}", 1.9 + number / 10) for number in range(6)]
    assert texts(explained("s", 1.5, SPILLS, 7), *many, explained("t", 1.4, line=32)) == [
        "6 cases: bank conflicts, transpose/tile.cuh:31 (1.9 to 2.4 times)",
        "transpose/s: register spills, transpose/tile.cuh:7 (1.5 times)",
        "transpose/t: bank conflicts, transpose/tile.cuh:32 (1.4 times)",
    ]
    shared = [explained("v", 2.0, file="../shared/tile.cuh", benchmark=name) for name in ("transpose", "softmax")]
    assert texts(*shared) == ["2 cases: bank conflicts, shared/tile.cuh:31 (2.0 times)"]
    assert texts(explained("a", 2.0), explained("a", 1.5, SPILLS, 7, device="GPU-2")) == [
        "transpose/a on GPU-1: bank conflicts, transpose/tile.cuh:31 (2.0 times)",
        "transpose/a on GPU-2: register spills, transpose/tile.cuh:7 (1.5 times)",
    ]


def test_the_place_is_the_line_of_the_slower_side_or_else_the_opcode():
    for series, place in [
        (explained("v", 2.0, file=None), ", LDS.U"),
        (explained("v", 2.0, line=0), ""),
        (explained("v", 2.0, factor=0.5), ", transpose/tile.cuh:31"),
    ]:
        assert texts(series) == [f"transpose/v: bank conflicts{place} (2.0 times)"], (series, place)


def test_small_slowdowns_are_in_per_cent_and_unknown_ones_are_left_out():
    assert texts(explained("a", 1.04), explained("b", 1.2)) == [
        "2 cases: bank conflicts, transpose/tile.cuh:31 (+4.0 % to +20.0 %)"
    ]
    unknown = replace(explained("a", 1.5), ratio=None)
    assert texts(unknown) == ["transpose/a: bank conflicts, transpose/tile.cuh:31"]
    none = explained("v", 2.0)
    none = replace(none, explanation=replace(none.explanation, reasons=()))
    assert texts(none) == ["transpose/v: nothing that was counted accounts for it (2.0 times)"]
    long = [explained("a", 2.0, file="f" * 10_000), failed("c", "x" * 100_000)]
    assert max(map(len, texts(*long))) < 2500


def test_a_case_is_counted_once_on_several_gpus_and_in_both_cache_states():
    one = explained("a", 2.0)
    warm = replace(one, ratio=1.5, series=replace(one.series, cache=CacheState.WARM))
    second = explained("a", 2.2, device="GPU-2")
    unexplained = moved("a", 2.5, device="GPU-3", awaits_profile=True)
    fault = failed("a", "ncu is missing", device="GPU-4")
    assert texts(one, warm, second, unexplained, fault) == [
        "transpose/a: bank conflicts, transpose/tile.cuh:31 (2.2 times)"
    ]


def test_cases_without_an_explanation_come_last_and_are_named():
    waiting = [moved(f"w{number}", 3.0, awaits_profile=True) for number in range(4)]
    faults = [failed(name, "ncu is missing; install it", 4.0) for name in "ab"]
    assert texts(*waiting, *faults, explained("x", 1.5), failed("c", "it hangs")) == [
        "transpose/x: bank conflicts, transpose/tile.cuh:31 (1.5 times)",
        "2 cases (transpose/a, transpose/b): not explained: ncu is missing; install it",
        "transpose/c: not explained: it hangs",
        "4 cases (transpose/w0, transpose/w1, transpose/w2 and 1 more): not yet explained",
    ]


def test_a_series_that_is_not_meant_to_be_explained_is_in_no_group():
    assert texts(moved("a", 2.0), explained("b", 1.5, recovered_run=3)) == []
    assert len(texts(explained("b", 1.5, recovered_run=3))) == 1  # all are back: their explanation is still of interest


def test_the_headline_is_the_explanation_of_the_worst_explained_case():
    found = finding(moved("a", 9.0, awaits_profile=True), explained("b", 1.5), explained("c", 2.0, SPILLS))
    assert finding_words.why(found) == "transpose/c: 2.0 × slower: because of c."
    assert short_why(found) == ""  # the worst case itself is not explained
    assert short_why(finding(explained("c", 2.0, SPILLS))) == "register spills, transpose/tile.cuh:31"


def test_the_list_has_the_headline_and_the_groups_and_a_finding_has_all_sentences():
    found = finding(explained("a", 2.0), explained("b", 1.9), failed("c", "it hangs"))
    listed, shown = drawn(findings_table([found])), drawn(finding_table(found, []))
    group = "2 cases: bank conflicts, transpose/tile.cuh:31 (1.9 to 2.0 times)"
    assert listed[listed.index("  why: transpose/a: 2.0 × slower: because of a.") + 1 :][:2] == [
        f"    {group}",
        "    transpose/c: not explained: it hangs",
    ]
    assert not any("because of b" in line for line in listed)
    assert shown[shown.index("why") + 1 :] == [
        f"  {group}",
        "    transpose/a: 2.0 × slower: because of a.",
        "    transpose/b: 1.9 × slower: because of b.",
        "  transpose/c: not explained: it hangs",
    ]
    found = finding(explained("a", 2.0), moved("a", 2.0, device="GPU-2"))
    assert group_lines(found) == []  # one explained case has its sentence alone
    assert sum("because of a" in line for line in drawn(finding_table(found, []))) == 1
    found = finding(*(explained(f"v{number}", 2.0, line=number) for number in range(1, MOST_GROUPS + 4)))
    assert "    and 3 more reasons" in drawn(findings_table([found]))


def test_json_has_the_groups_and_the_explanation_of_each_series():
    result = finding_json(finding(explained("a", 2.0), failed("c", "it hangs"), moved("d", 1.5)), [])
    assert [(group["reason"], group["place"]) for group in result["explanations"]] == [
        ("bank conflicts", "transpose/tile.cuh:31"),
        ("not explained: it hangs", ""),
    ]
    assert result["explanations"][0]["cases"] == [
        {"name": "transpose/a", "ratio": 2.0, "sentence": "2.0 × slower: because of a."}
    ]
    assert [(series["why"], series["not_explained"]) for series in result["moved"]] == [
        ("2.0 × slower: because of a.", ""),
        ("", "it hangs"),
        ("", ""),
    ]
