"""What pull requests show: the formats made from a review, with hostile text in every field."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from perfsvc.errors import SuiteError
from perfsvc.model import TIME, Case, Cause, Judgement, Series, Verdict
from perfsvc.report.export.github import check_run_annotations, marker, summary, workflow_commands
from perfsvc.report.export.sarif import review_code_quality, review_sarif
from perfsvc.report.review import LOCAL, Remark, Review, SourceLocation, comparison_review, kernel_line
from perfsvc.report.rows import ComparedRun
from perfsvc.text import json_text
from tests.e2e.stored_text import PAYLOADS

SLOWER = Remark("regression", "error", "regression: dot/tree[n=4]", "dot/tree[n=4]", "+5 %", "k/dot.cu", 3, "0a")
MAYBE = Remark("inconclusive", "warning", "inconclusive: dot/flat[n=4]", "dot/flat[n=4]", "noisy", "k/dot.cu", 9, "0b")
FASTER = Remark("improvement", "notice", "improvement: dot/wide[n=4]", "dot/wide[n=4]", "-5 %", "k/dot.cu", 30, "0c")
MEMORY = Remark(LOCAL, "warning", "local memory", "k/dot.cu:5", "60 % of the loads", "k/dot.cu", 5, "0d")
REVIEW = Review("compare", False, "1 regression", "a against b", (SLOWER, MAYBE, FASTER, MEMORY), ("1 skipped",))
COMMIT = "0123456789" * 4


def hostile(payload):
    """Return the review with a payload in every text."""
    remarks = [
        replace(remark, title=payload + remark.title, text=payload + remark.text, path=f"k/{payload}.cu")
        for remark in REVIEW.remarks
    ]
    notes = (payload, payload * 2)
    return Review("compare", False, payload + "1 regression", payload, tuple(remarks), notes)


EVERY = [REVIEW, *(hostile(payload) for payload in PAYLOADS.values())]


# --- a review --------------------------------------------------------------------------------------------------------


def judgement(variant, verdict, **values):
    return Judgement(Series(Case("dot", variant, (("n", 4),)), "GPU-1", "H100", metric=TIME), verdict, **values)


def test_a_comparison_has_a_remark_for_each_series_to_look_at():
    slower = judgement("tree", Verdict.REGRESSION, ratio=1.05, low=1.04, high=1.06, cause=Cause.KERNEL)
    others = [
        judgement("same", Verdict.UNCHANGED),
        judgement("noise", Verdict.REGRESSION, ratio=1.05, cause=Cause.NOISE),
        judgement("gone", Verdict.MISSING, reason="HEAD does not have it"),
    ]
    problem = SuiteError("nonsense", path="k/bench.py", line=2)
    review = comparison_review(
        ComparedRun("main", None, commit="a" * 40),
        ComparedRun("HEAD", None, commit="b" * 40),
        [slower, *others],
        passed=False,
        locations={slower.series: SourceLocation("k/dot.cu", 3)},
        problems=[problem],
    )
    assert [(remark.rule, remark.subject, remark.path, remark.line) for remark in review.remarks] == [
        ("broken-benchmark", "k/bench.py", "k/bench.py", 2),
        ("regression", "dot/tree[n=4]", "k/dot.cu", 3),
        ("missing", "dot/gone[n=4]", "", 0),
    ]
    assert review.remarks[1].text == "+5.0 % (+4.0 % to +6.0 %), cause: kernel"
    assert review.about == "HEAD = bbbbbbbbb, against main = aaaaaaaaa"


def test_fingerprints_do_not_depend_on_the_size_of_a_change_and_are_unique():
    rows = [judgement("tree", Verdict.REGRESSION, ratio=ratio) for ratio in (1.05, 1.1)]

    def fingerprints(*judgements):
        review = comparison_review(None, ComparedRun("HEAD", None), judgements, passed=False)
        return [remark.fingerprint for remark in review.remarks]

    assert fingerprints(rows[0]) == fingerprints(rows[1])
    assert len(set(fingerprints(*rows))) == 2


def test_the_line_of_a_kernel(tmp_path):
    for name, text, kernel, line in [
        ("a.cu", "// scale\n\n__global__ void scale(int n) {}\n", "scale", 3),
        ("a.cu", "\nvoid scale (int n) {}\n", "a.cu:scale", 2),
        ("a.cu", "\ntemplate <int N> void scale(int n) {}\n", "scale<256>", 2),
        ("a.cu", "\nvoid rescale(int n) {}\n", "scale", 1),
        ("a.py", "x = scale(1)\ndef scale(n): ...\n", "scale BLOCK=64 num_warps=4", 2),
        ("a.cu", "", "a(", 1),
    ]:
        (tmp_path / name).write_text(text)
        assert kernel_line(tmp_path / name, kernel) == line, (name, text, kernel, line)


# --- files -----------------------------------------------------------------------------------------------------------


def shape(value):
    """Return a value of JSON with ``text`` for each text that is not empty."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return "text" if isinstance(value, str) and value else value


def sarif(review):
    return json.loads(json_text(review_sarif(review)))


def test_sarif_has_errors_and_warnings_at_their_lines_and_the_same_shape_with_hostile_texts():
    found = sarif(REVIEW)
    (run,) = found["runs"]
    assert (set(found), found["version"]) == ({"$schema", "version", "runs"}, "2.1.0")
    assert set(run) == {"tool", "automationDetails", "columnKind", "results"}
    assert set(run["tool"]["driver"]) == {"name", "semanticVersion", "rules"}
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["regression", "inconclusive"]
    assert run["columnKind"] == "unicodeCodePoints"
    for number, (result, remark, level) in enumerate(
        zip(run["results"], (SLOWER, MAYBE), ("error", "warning"), strict=True)
    ):
        place = {"uri": "k/dot.cu", "uriBaseId": "SRCROOT"}
        assert result == {
            "ruleId": remark.rule,
            "ruleIndex": number,
            "level": level,
            "message": {"text": f"{remark.title}: {remark.text}"},
            "partialFingerprints": {"perfsvc/v1": remark.fingerprint},
            "locations": [{"physicalLocation": {"artifactLocation": place, "region": {"startLine": remark.line}}}],
        }
    for review in EVERY:
        hostile_run = sarif(review)["runs"][0]
        assert shape(hostile_run) == shape(run)
        for result in hostile_run["results"]:
            text, (location,) = result["message"]["text"], result["locations"]
            assert re.fullmatch(
                r"[\w%/.~!$&'()*+,;=:@-]+", location["physicalLocation"]["artifactLocation"]["uri"], re.ASCII
            )
            assert not re.search(r"\[[^\]]*\]\(", text)
            assert not re.search(r"(?<!\{)(?:\{\{)*\{\d", text)
            assert not set("\x1b\u202e") & set(text)


def test_sarif_has_no_place_for_a_file_outside_the_repository():
    for path in ("/etc/passwd", "../up.cu", "a/../../up.cu", ""):
        (run,) = review_sarif(replace(REVIEW, remarks=(replace(SLOWER, path=path),)))["runs"]
        assert "locations" not in run["results"][0], path


def test_code_quality_has_the_fields_that_gitlab_needs():
    for review in EVERY:
        entries = json.loads(json_text(review_code_quality(review)))
        assert [(entry["severity"], entry["fingerprint"], entry["location"]["lines"]) for entry in entries] == [
            ("critical", "0a", {"begin": 3}),
            ("minor", "0b", {"begin": 9}),
        ]
        for entry in entries:
            assert entry["description"], review
            assert entry["check_name"].startswith("perfsvc compare: "), review
            assert entry["location"]["path"], review


# --- GitHub ----------------------------------------------------------------------------------------------------------


def test_each_remark_is_one_workflow_command_and_nothing_else_is_one():
    for review in EVERY:
        lines = workflow_commands(review).splitlines()
        assert [line.partition(" ")[0] for line in lines] == [
            "::error",
            "::warning",
            "::notice",
            "::warning",
            "::notice",
        ]
        for line in lines:
            assert not re.search(r"##\w*\[", line), review
            _, properties, _ = line.split("::", 2)
            assert {pair.partition("=")[0] for pair in properties.partition(" ")[2].split(",")} <= {
                "file",
                "line",
                "title",
            }


def test_annotations_keep_to_the_limits_of_github():
    for review in EVERY:
        for annotation in check_run_annotations(review):
            assert annotation["title"], review
            assert len(annotation["title"]) <= 255, review
            assert len(annotation["message"].encode()) <= 65_536, review
            assert annotation["start_line"] >= 1, review
            assert "\x1b" not in annotation["title"] + annotation["message"], review
            assert "\u202e" not in annotation["title"] + annotation["message"], review


def test_remarks_of_one_kind_at_one_line_share_an_annotation_and_errors_come_first():
    remarks = (MAYBE, replace(SLOWER, title="regression: other", text="+9 %"), SLOWER)
    first, second = check_run_annotations(replace(REVIEW, remarks=remarks))
    assert (first["annotation_level"], first["title"]) == ("failure", "regression: other and 1 more")
    assert first["message"] == "regression: other: +9 %\nregression: dot/tree[n=4]: +5 %"
    assert second["annotation_level"] == "warning"


class Structure(HTMLParser):
    """The tags of a page with their attributes, and the number of comments."""

    def __init__(self):
        super().__init__()
        self.tags, self.comments = [], 0

    def handle_starttag(self, tag, attributes):
        if tag != "br":  # a line end within a text
            self.tags.append((tag, tuple(attributes)))

    def handle_comment(self, _):
        self.comments += 1


def structure(review):
    text = f"{marker('name')}\n{summary(review, 'perfsvc compare', COMMIT)}"
    html = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable(["table", "strikethrough"]).render(text)
    read = Structure()
    read.feed(html)
    return read.tags, read.comments


def test_a_hostile_comment_has_the_structure_of_a_harmless_one():
    for payload in PAYLOADS:
        found = summary(hostile(PAYLOADS[payload]), "perfsvc compare", COMMIT)
        assert structure(hostile(PAYLOADS[payload])) == structure(hostile("word ")), payload
        outside_code = re.sub("`[^`]*`", "", found)  # GitHub looks for no mention and no address in code
        assert not re.search(r"@\w|://|www\.", outside_code), payload
        assert "\x1b" not in found, payload
        assert "\u202e" not in found, payload


def test_a_comment_with_very_many_results_fits_and_counts_the_others():
    remarks = tuple(replace(SLOWER, title=f"regression: {'x' * 500}{number}") for number in range(2_000))
    text = summary(replace(REVIEW, remarks=remarks), "perfsvc compare", COMMIT)
    assert len(text) <= 65_000
    shown = text.count("| `regression: ")
    assert shown > 50
    assert f"… and {2_000 - shown} more results" in text


def test_addresses_and_issues_in_a_text_become_no_links_and_markers_hold_no_name():
    text = "see https://x.example, WWW.x.example, #12, a/b#12 and GH-12"
    found = summary(replace(REVIEW, about=text), "perfsvc compare", COMMIT)
    for live in ("://", "WWW.", "&#35;1", "GH-1"):
        assert live not in found
    assert marker("perfsvc check") != marker("perfsvc compare")
    assert re.fullmatch(r"<!-- perfsvc [0-9a-f]{32} -->", marker("--> <script>"))
