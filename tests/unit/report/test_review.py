"""What pull requests show: the formats made from a review, with hostile text in every field."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import jsonschema
import pytest
from markdown_it import MarkdownIt

from perfsvc.errors import SuiteError
from perfsvc.model import TIME, Case, Cause, Judgement, Series, Verdict
from perfsvc.report.export.code_quality import review_code_quality
from perfsvc.report.export.github import check_run_annotations, marker, summary, workflow_commands
from perfsvc.report.export.sarif import review_sarif
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


def object_of(properties, optional=()):
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
LOCATION = object_of(
    {
        "physicalLocation": object_of(
            {
                "artifactLocation": object_of(
                    {"uri": {"type": "string", "format": "uri-reference"}, "uriBaseId": TEXT}
                ),
                "region": object_of({"startLine": {"type": "integer", "minimum": 1}}),
            }
        )
    }
)
RESULT = object_of(
    {
        "ruleId": TEXT,
        "ruleIndex": COUNT,
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": object_of({"text": TEXT}),
        "partialFingerprints": {"type": "object", "additionalProperties": TEXT},
        "locations": {"type": "array", "items": LOCATION},
    },
    optional=("locations",),
)
RULE = object_of({"id": TEXT, "shortDescription": object_of({"text": TEXT})})
DRIVER = object_of(
    {"name": TEXT, "semanticVersion": TEXT, "rules": {"type": "array", "items": RULE, "uniqueItems": True}}
)
RUN = object_of(
    {
        "tool": object_of({"driver": DRIVER}),
        "automationDetails": object_of({"id": TEXT}),
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": RESULT},
    }
)
SARIF = object_of(
    {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": RUN},
    }
)
"""The parts of the schema of SARIF 2.1.0 that perfsvc writes."""


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


@pytest.mark.parametrize(
    ("name", "text", "kernel", "line"),
    [
        ("a.cu", "// scale\n\n__global__ void scale(int n) {}\n", "scale", 3),
        ("a.cu", "\nvoid scale (int n) {}\n", "a.cu:scale", 2),
        ("a.cu", "\ntemplate <int N> void scale(int n) {}\n", "scale<256>", 2),
        ("a.cu", "\nvoid rescale(int n) {}\n", "scale", 1),
        ("a.py", "x = scale(1)\ndef scale(n): ...\n", "scale BLOCK=64 num_warps=4", 2),
        ("a.cu", "", "a(", 1),
    ],
)
def test_the_line_of_a_kernel(tmp_path, name, text, kernel, line):
    (tmp_path / name).write_text(text)
    assert kernel_line(tmp_path / name, kernel) == line


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("review", EVERY)
def test_sarif_is_valid_and_has_errors_and_warnings_at_their_lines(review):
    written = json.loads(json_text(review_sarif(review)))
    jsonschema.validate(written, SARIF, format_checker=jsonschema.FormatChecker())
    (run,) = written["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("regression", "error"),
        ("inconclusive", "warning"),
    ]
    assert [run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] for result in run["results"]] == [
        "regression",
        "inconclusive",
    ]
    for result in run["results"]:
        text = result["message"]["text"]
        assert not re.search(r"\[[^\]]*\]\(", text)
        assert not re.search(r"(?<!\{)(?:\{\{)*\{\d", text)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_sarif_has_no_place_for_a_file_outside_the_repository():
    for path in ("/etc/passwd", "../up.cu", "a/../../up.cu", ""):
        ((result,),) = [run["results"] for run in review_sarif(replace(REVIEW, remarks=(replace(SLOWER, path=path),)))["runs"]]  # fmt: skip # noqa: E501
        assert "locations" not in result


@pytest.mark.parametrize("review", EVERY)
def test_code_quality_has_the_fields_that_gitlab_needs(review):
    entries = json.loads(json_text(review_code_quality(review)))
    assert [(entry["severity"], entry["fingerprint"], entry["location"]["lines"]) for entry in entries] == [
        ("critical", "0a", {"begin": 3}),
        ("minor", "0b", {"begin": 9}),
    ]
    for entry in entries:
        assert entry["description"]
        assert entry["check_name"].startswith("perfsvc compare: ")
        assert entry["location"]["path"]


# --- GitHub ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("review", EVERY)
def test_each_remark_is_one_workflow_command_and_nothing_else_is_one(review):
    lines = workflow_commands(review).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::notice", "::warning", "::notice"]
    for line in lines:
        assert not re.search(r"##\w*\[", line)
        _, properties, _ = line.split("::", 2)
        assert {pair.partition("=")[0] for pair in properties.partition(" ")[2].split(",")} <= {"file", "line", "title"}


@pytest.mark.parametrize("review", EVERY)
def test_annotations_keep_to_the_limits_of_github(review):
    for annotation in check_run_annotations(review):
        assert annotation["title"]
        assert len(annotation["title"]) <= 255
        assert len(annotation["message"].encode()) <= 65_536
        assert annotation["start_line"] >= 1
        assert "\x1b" not in annotation["title"] + annotation["message"]
        assert "\u202e" not in annotation["title"] + annotation["message"]


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


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_comment_has_the_structure_of_a_harmless_one(payload):
    found = summary(hostile(PAYLOADS[payload]), "perfsvc compare", COMMIT)
    assert structure(hostile(PAYLOADS[payload])) == structure(hostile("word "))
    outside_code = re.sub("`[^`]*`", "", found)  # GitHub looks for no mention and no address in code
    assert not re.search(r"@\w|://|www\.", outside_code)
    assert "\x1b" not in found
    assert "\u202e" not in found


def test_addresses_and_issues_in_a_text_become_no_links():
    text = "see https://x.example, WWW.x.example, #12, a/b#12 and GH-12"
    found = summary(replace(REVIEW, about=text), "perfsvc compare", COMMIT)
    for live in ("://", "WWW.", "&#35;1", "GH-1"):
        assert live not in found


def test_a_comment_with_very_many_results_fits_and_counts_the_others():
    remarks = tuple(replace(SLOWER, title=f"regression: {'x' * 500}{number}") for number in range(2_000))
    text = summary(replace(REVIEW, remarks=remarks), "perfsvc compare", COMMIT)
    assert len(text) <= 65_000
    shown = text.count("| `regression: ")
    assert shown > 50
    assert f"… and {2_000 - shown} more results" in text


def test_markers_of_several_checks_differ_and_hold_no_name():
    assert marker("perfsvc check") != marker("perfsvc compare")
    assert re.fullmatch(r"<!-- perfsvc [0-9a-f]{32} -->", marker("--> <script>"))
