"""The text of a message: the worst first, grouped by cause, with how to look further."""

from dataclasses import replace
from datetime import UTC, datetime

from perfsvc.model import (
    Case,
    CaseExplanation,
    Cause,
    Commit,
    Direction,
    Finding,
    FindingState,
    HotLine,
    Judgement,
    MovedSeries,
    Reason,
    ReasonKind,
    Series,
    SourceLine,
    Verdict,
)
from perfsvc.service.notify.background import Background
from perfsvc.service.notify.news import ExtendedFinding, News
from perfsvc.service.notify.weekly import Digest, Reminder
from perfsvc.service.notify.words import (
    IN_FULL,
    LONGEST_LINE,
    LONGEST_TITLE,
    LONGEST_WHY,
    body,
    digest_body,
    digest_title,
    title,
)
from perfsvc.store import NightRow, RunState, StageRow, StageState

NOW = datetime(2026, 1, 1, 2, tzinfo=UTC)
NIGHT = NightRow(
    *(12, RunState.RUNNING, NOW, None, "gpu-box", 1, "", "/srv/perf/kernels", "1a2b3c4d5e6f", False, "", 7),
    *("perfsvc nightly", {}, None),
)


def moved(ratio=1.053, variant="tiled", n=64, device="GPU-1", metric="time"):
    series = Series(Case("transpose", variant, (("n", n),)), device, "NVIDIA H200", metric)
    direction = Direction.SLOWER if ratio > 1 else Direction.FASTER
    return MovedSeries(series, ratio, ratio - 0.004, ratio + 0.003, 5, 1e-4, 1e-4 * ratio, 7, direction=direction)


def finding(*series, number=7, cause=Cause.KERNEL, **given):
    defaults = {"root_cause": "", "evidence": "both binaries were measured in A/B pairs", "reason": "", "by": ""}
    state = {"first_run": 7, "last_run": 7, "state": FindingState.OPEN, "at": NOW}
    return Finding(id=number, cause=cause, moved=series or (moved(),), **{**defaults, **state, **given})


def explained(series, kind, line=31):
    """Return a moved series with an explanation: a reason at a line of a header."""
    where = HotLine(1.0, "LDG.E R2, [R4]", source=SourceLine("tile.cuh", line))
    case, ratio = series.series.case, series.ratio
    reasons = (Reason(kind, 1.0, "1 → 2", after=(where,)),)
    sentence = f"{ratio:.1f} × slower: {kind} can account for all of it."
    why = CaseExplanation(case, series.series.device, "NVIDIA H200", 5, 7, sentence, reasons, ratio)
    return replace(series, explanation=why)


def judged(n=64, verdict=Verdict.BROKEN, cause=None):
    return Judgement(moved(n=n).series, verdict, "the result is off by 0.31", cause=cause)


def broken(n=64, reason="the result is off by 0.31", cause=Cause.FAILED, **given):
    every = [replace(moved(n=n), ratio=None, low=None, high=None, direction=Direction.BROKEN)]
    return finding(*every, cause=cause, number=20 + n, evidence=reason, **given)


PAGE = StageRow("page", 10, StageState.FAILED, NOW, 1.0, "site/index.html cannot be written: disk full", "make room")
SLOW = finding()
SLOW_GPU = replace(finding(cause=Cause.SLOW_GPU, root_cause="GPU-1 (NVIDIA H100) on host a"), moved=())
FAST = finding(moved(0.8, "naive"), number=8)
MANY = finding(*(moved(1.02, f"v{n}", device=f"GPU-{n % 2}") for n in range(9)), number=9, cause=Cause.ENVIRONMENT)


def news(**given):
    return News(NIGHT, **given)


def test_the_title_names_the_news():
    titles = {
        "transpose/tiled[n=64] slower by 5.3 %": news(raised=(SLOW,)),
        "transpose/naive[n=64] faster by 20 %": news(raised=(FAST,)),
        "transpose/v0[n=64] slower by 2 %, and 8 more": news(raised=(MANY,)),
        "transpose/tiled[n=64] slower by a factor of 2.5": news(raised=(finding(moved(2.5)),)),
        "transpose/tiled[n=64] energy_j higher by 10 %": news(raised=(finding(moved(1.1, metric="energy_j")),)),
        "transpose/tiled at the old level again": news(resolved=(SLOW,)),
        "GPU-1 (NVIDIA H100) on host a is slower than others of its model": news(raised=(SLOW_GPU,)),
        "GPU-1 (NVIDIA H100) on host a is as fast as others of its model again": news(resolved=(SLOW_GPU,)),
        "transpose/tiled[n=64] failed, 1 more new finding": news(raised=(broken(), SLOW)),
        "transpose/tiled[n=64] has a wrong result": news(raised=(broken(cause=Cause.WRONG),)),
        "transpose/tiled[n=64] hung": news(raised=(broken(cause=Cause.HUNG),)),
        "transpose/tiled correct again": news(resolved=(broken(),)),
        "stage page failed": news(stages=(PAGE,)),
        "transpose/tiled[n=64] slower by 2 %, 1 more new finding": news(raised=(FAST, finding(moved(1.02)))),
    }
    assert [title(message) for message in titles.values()] == list(titles)


def test_the_title_begins_with_the_worst_and_counts_the_others():
    everything = news(raised=(FAST, MANY, SLOW), resolved=(SLOW,), stages=(PAGE,))
    assert title(everything) == (
        "transpose/tiled[n=64] slower by 5.3 %, 2 more new findings, 1 failed stage, 1 resolved finding"
    )
    worst = replace(everything, raised=(*everything.raised, broken()))
    assert title(worst).startswith("transpose/tiled[n=64] failed, 3 more new findings")


def test_the_title_is_one_short_line():
    text = title(news(raised=(finding(moved(variant="a\nb" * 200)),)))
    assert len(text) == LONGEST_TITLE
    assert "\n" not in text


def test_a_finding_has_a_paragraph_with_its_cause_its_worst_cases_and_how_to_look_further():
    of_code = finding(
        *(moved(1 + n / 100, n=n) for n in range(1, 6)),
        explained(moved(1.06, n=6), ReasonKind.INSTRUCTIONS),
        moved(1.07, n=7),
        root_cause="1a2b3c4d5 Use float4 loads (Jane Doe)",
        owner="jane",
    )
    paragraph = body(news(raised=(of_code,)), "https://perf.example.org/").split("\n\n")[1]
    assert paragraph.splitlines() == [
        "Finding 7 (new): kernel, 1a2b3c4d5 Use float4 loads (Jane Doe)",
        "- regression transpose/tiled[n=7]: +7.0 % (+6.6 % to +7.3 %)",
        "- regression transpose/tiled[n=6]: +6.0 % (+5.6 % to +6.3 %)",
        "- regression transpose/tiled[n=5]: +5.0 % (+4.6 % to +5.3 %)",
        "- regression transpose/tiled[n=4]: +4.0 % (+3.6 % to +4.3 %)",
        "- regression transpose/tiled[n=3]: +3.0 % (+2.6 % to +3.3 %)",
        "- and 2 more",
        "why: transpose/tiled[n=6]: 1.1 × slower: more instructions can account for all of it.",
        "on NVIDIA H200",
        "both binaries were measured in A/B pairs",
        "jane looks after it",
        "perfsvc findings show 7",
        "https://perf.example.org/findings/7.html",
    ]


def test_the_cases_of_a_finding_are_grouped_by_reason_below_the_worst_one():
    slower = [explained(moved(2.4 - n / 10, n=n), ReasonKind.UNCOALESCED) for n in range(6)]
    other = explained(moved(1.2, "naive"), ReasonKind.SPILLS, line=7)
    waiting = replace(moved(1.1, "last"), awaits_profile=True)
    raised = news(raised=(finding(*slower, other, waiting),))
    reason = "uncoalesced access, transpose/tile.cuh:31"
    assert title(raised) == f"transpose/tiled[n=0] slower by a factor of 2.4 ({reason}), and 7 more"
    lines = body(raised, "").splitlines()
    assert lines[lines.index("- and 3 more") + 1 :][:4] == [
        "why: transpose/tiled[n=0]: 2.4 × slower: uncoalesced access can account for all of it.",
        f"- 6 cases: {reason} (1.9 to 2.4 times)",
        "- transpose/naive[n=64]: register spills, transpose/tile.cuh:7 (1.2 times)",
        "- transpose/last[n=64]: not yet explained",
    ]


def test_the_line_that_explains_a_finding_is_long_enough_for_the_change():
    long = explained(moved(2.0), ReasonKind.SPILLS)
    sentence = f"2.0 × slower: {'x' * 400} Changed: {'y' * 400}"
    lines = body(news(raised=(finding(replace(long, explanation=replace(long.explanation, sentence=sentence))),)), "")
    (why,) = [line for line in lines.splitlines() if line.startswith("why: ")]
    assert len(why) == LONGEST_WHY


def test_the_first_lines_name_the_night_and_its_run_and_whether_it_counts():
    first, second, *_ = body(news(stages=(PAGE,)), "").splitlines()
    assert first == "Night 12 on gpu-box: run 7 of kernels at 1a2b3c4d5"
    assert "does not count" not in second
    first, second, *_ = body(News(replace(NIGHT, run=None, dirty=True), stages=(PAGE,)), "").splitlines()
    assert first.startswith("Night 12 on gpu-box: no run of kernels at 1a2b3c4d5 with uncommitted changes")
    assert second == (
        "This night does not count, because its changes are not committed: it raises and resolves no finding "
        "and moves no baseline."
    )


def test_the_second_line_counts_the_verdicts_and_keeps_noise_and_known_regressions_apart():
    slower = [judged(verdict=Verdict.REGRESSION, cause=cause) for cause in (Cause.KERNEL, Cause.NOISE)]
    text = body(news(raised=(SLOW,), judgements=tuple(slower)), "")
    assert text.splitlines()[1] == "1 new regression, 1 moved by noise, 0 new improvements, 0 unchanged"
    slower = tuple(judged(n, Verdict.REGRESSION, Cause.KERNEL) for n in (64, 128, 256))
    known = {slower[1].series: 3, slower[2].series: 4}
    assert body(news(raised=(SLOW,), judgements=slower, known=known), "").splitlines()[1:3] == [
        "1 new regression, 0 new improvements, 0 unchanged",
        "2 series are known to have moved, from earlier nights: findings 3, 4 (perfsvc findings)",
    ]


def test_more_cases_of_a_finding_are_named_without_its_known_ones():
    joined = (moved(1.04, "new"),)
    extended = ExtendedFinding(finding(moved(1.5), *joined), "transpose/new[n=64]: confirmed", joined=joined)
    assert title(news(extended=(extended,))) == "transpose/new[n=64] slower by 4 %, in finding 7 too"


def test_paragraphs_are_ordered_by_cause_and_size_and_without_a_page_there_are_no_links():
    worse = finding(moved(1.5, "worse"), number=10)
    text = body(news(raised=(MANY, SLOW, FAST, worse, broken()), resolved=(FAST,)), "")
    heads = [line.split()[1] for line in text.splitlines() if line.startswith("Finding")]
    assert heads == ["84", "10", "7", "8", "9"]
    assert "on 2 GPUs: NVIDIA H200" in text
    assert "http" not in text


def test_all_other_news_has_a_paragraph_with_how_to_look_further():
    resolved = finding(number=3, reason="back at its old level in run 7")
    extended = ExtendedFinding(SLOW, "transpose/tiled[n=128]: confirmed")
    text = body(
        news(raised=(broken(),), reopened=(FAST,), extended=(extended,), resolved=(resolved,), stages=(PAGE,)),
        "https://perf.example.org",
    )
    assert text.split("\n\n")[1:] == [
        (
            "Finding 84 (new): failed\n- broken transpose/tiled[n=64]: failed\n"
            "on NVIDIA H200\nthe result is off by 0.31\n"
            "perfsvc findings show 84\nhttps://perf.example.org/findings/84.html"
        ),
        (
            "Finding 8 (shows again): kernel\n"
            "- improvement transpose/naive[n=64]: -20.0 % (-20.4 % to -19.7 %)\n"
            "on NVIDIA H200\nboth binaries were measured in A/B pairs\n"
            "perfsvc findings show 8\nhttps://perf.example.org/findings/8.html"
        ),
        (
            "Finding 7 (more cases): kernel\n- transpose/tiled[n=128]: confirmed\n"
            "perfsvc findings show 7\nhttps://perf.example.org/findings/7.html"
        ),
        "Failed stages of the night\n- page: site/index.html cannot be written: disk full\n  cure: make room",
        "Resolved\n- finding 3, transpose/tiled: back at its old level in run 7\nperfsvc findings --all",
        "All of it: https://perf.example.org/",
    ]


def test_a_message_with_hundreds_of_findings_and_failures_stays_short():
    asked = []
    findings = tuple(broken(number, "error: " * 1_000) for number in range(300))
    message = news(raised=findings)
    text = body(message, "https://perf.example.org", lambda finding: asked.append(finding.id) or Background())
    assert len(asked) == IN_FULL  # only findings with a paragraph are looked up
    assert f"And {300 - IN_FULL} more findings: perfsvc findings" in text
    assert max(map(len, text.splitlines())) <= LONGEST_LINE + 2
    assert len(text) < 10_000


def commit(number, subject="Use float4 loads", author="Jane Doe <jane@example.org>"):
    return Commit(f"{number:040x}", subject, author, NOW)


def test_a_finding_has_the_recent_levels_of_its_worst_case_and_its_commits():
    behind = Background((commit(1), commit(2, "")), 5, moved().series, (1.0, 1.01, None, 1.0, 1.05))
    changed = finding(root_cause="9f8e7d6c5..1a2b3c4d5")
    assert body(news(raised=(changed,)), "", lambda _: behind).splitlines()[-7:] == [
        "both binaries were measured in A/B pairs",
        "transpose/tiled[n=64] in the last 5 nights: ▁▂·▁█",
        "Commits:",
        "- 000000000 Use float4 loads (Jane Doe)",
        "- 000000000 (Jane Doe)",
        "- and 3 more: git log 9f8e7d6c5..1a2b3c4d5",
        "perfsvc findings show 7",
    ]


def test_the_commits_that_are_left_out_are_found_in_the_range_of_any_step():
    behind = Background((commit(1), commit(2)), 6)
    first, second = (replace(moved(), root_cause=commits) for commits in ("aaaaaaa..bbbbbbb", "bbbbbbb..ccccccc"))
    stepped = ExtendedFinding(SLOW, "", (first, second))
    text = body(news(stepped=(stepped,)), "", lambda _: behind)
    assert "- and 4 more: git log bbbbbbb..ccccccc; git log aaaaaaa..bbbbbbb" in text


COMMITS = {
    "ping @everyone and <!channel>": "ping @\u200beveryone and <\u200b!channel>",
    "[here](http://evil)": "[here]\u200b(http://evil)",
    "two\nlines\x1b[31m \u202egnp": "two lines[31m gnp",
    "x" * 200: "x" * 79 + "…",
}


def test_a_commit_rings_no_phone_and_hides_no_link():
    for subject, shown in COMMITS.items():
        behind = Background((commit(1, subject, f"{subject} <a@b>"),), 1)
        text = body(news(raised=(SLOW,)), "", lambda _, behind=behind: behind)
        assert f"- 000000000 {shown} (" in text
        assert "@everyone" not in text


def test_reminders_name_their_findings_the_days_and_how_to_answer():
    reminders = (Reminder(SLOW, NOW, 8), Reminder(FAST, NOW, 7))
    assert title(news(reminders=reminders)) == (
        "transpose/tiled[n=64] slower by 5.3 %, unanswered for 8 days, 1 more unanswered finding"
    )
    assert body(news(reminders=reminders), "").split("\n\n")[1].splitlines() == [
        "Still open, and no person has done anything with it",
        "- finding 7, for 8 days: transpose/tiled[n=64] slower by 5.3 %",
        "- finding 8, for 7 days: transpose/naive[n=64] faster by 20 %",
        "perfsvc findings show 7; perfsvc findings ack 7",
    ]


def test_a_digest_counts_nights_series_and_open_findings():
    unchanged = Judgement(moved().series, Verdict.UNCHANGED)
    stopped = replace(NIGHT, id=11, state=RunState.INTERRUPTED)
    digest = Digest(NOW, (NIGHT, stopped), (7,), (unchanged, unchanged, judged()), 1)
    assert digest_title(digest) == "a quiet week: 2 nights, 2 of 3 series unchanged"
    text = digest_body(NIGHT, digest, "https://perf.example.org")
    assert text.splitlines() == [
        "Night 12 on gpu-box: run 7 of kernels at 1a2b3c4d5",
        "",
        "Since 2026-01-01 there was no news for you.",
        "2 nights on 1 host, of which stages failed in night 11",
        "3 series in the newest run 7: 0 regressions, 0 improvements, 2 unchanged, 1 broken",
        "1 open finding: perfsvc findings",
        "",
        "All of it: https://perf.example.org/",
    ]


def test_a_slow_gpu_is_named_with_its_evidence_and_how_the_cases_do_on_other_models():
    slow = replace(SLOW_GPU, evidence="+5.2 % against 7 other GPUs of its model")
    behind = Background(other_models="only on NVIDIA H100; unchanged on NVIDIA A100 in run 12")
    lines = body(news(raised=(slow,)), "", lambda _: behind).splitlines()
    head = "Finding 7 (new): slow gpu, GPU-1 (NVIDIA H100) on host a"
    assert {head, "+5.2 % against 7 other GPUs of its model", behind.other_models} <= set(lines)
    assert "missing" not in "".join(lines)
