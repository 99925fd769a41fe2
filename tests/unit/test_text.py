"""Hostile text in every output: nothing of it may be live in a terminal, a CI log, a file, a page or a message."""

import csv
import io
import json
import re
import sys
import unicodedata
from xml.etree import ElementTree as ET

import click
import openpyxl
import pandas as pd
import pytest
from rich.table import Table
from rich.text import Text
from sqlalchemy.exc import OperationalError

from perfsvc import text
from perfsvc.cli import ending, output
from perfsvc.errors import DatabaseError, SuiteError
from perfsvc.model import Case, CheckedKernel, Status
from perfsvc.report.checks import StaticCheck
from perfsvc.report.export import check_formats
from perfsvc.report.export.files import content, write
from perfsvc.report.export.github import workflow_commands
from perfsvc.report.pages.render import template
from perfsvc.report.review import check_review
from perfsvc.store.schema.column_types import FreeText
from perfsvc.store.schema.engine import resolve, shown, translated

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07",
    "\x9b2J\x90q",
    "\u202eevil\u2066\u200f",
    "::error file=a::owned",
    "line\n  ::set-output name=a::b",
    "##[error]owned ##vso[task.complete]",
    "line\r::warning::owned",
    "line\x0b::warning::owned\u2028::error::x\x85::error::y",
    '=HYPERLINK("http://x","y")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1+1)",
    "\t=1+1",
    "@everyone <!channel> <@U123>",
    '<a href="http://x">y</a><script>alert(1)</script>',
    "[y](http://x) ![y](http://x)",
    "`|` | **bold** # head",
    "nul\0 lone \udcff\ud800 tag \U000e0041",
    "</system-out>]]>&lt;\ufffe\uffff",
)
FIELDS = 30


def is_unseen(letter: str) -> bool:
    return unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and letter not in "\t\n"


def is_live_in_a_log(printed: str) -> bool:
    """Return True if a log holds a workflow command as GitHub's and Azure's runners find them."""
    commands = any(line.lstrip().startswith("::") for line in printed.splitlines())
    return commands or re.search(r"##\w*\[", printed) is not None


def frame() -> pd.DataFrame:
    """Return a frame with each hostile text in each of 30 fields."""
    return pd.DataFrame({f"field_{number}": HOSTILE for number in range(FIELDS)}, dtype=object)


def hostile_check() -> StaticCheck:
    failed = tuple(CheckedKernel(Case("dot", text), "sm_90", text, Status.SKIPPED, text) for text in HOSTILE)
    problems = [SuiteError(text, path=f"/x/{text.replace(chr(0), '').replace(chr(0xD800), '')}") for text in HOSTILE]
    texts = {"check": None, "against": "x", "toolkit": "y", "disassembler": ""}
    return StaticCheck(**texts, checked=failed, verdicts=(), sources={}, problems=problems)


class Streams:
    """Standard output as a command has it, on a file of bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
        self._bytes = io.BytesIO()
        self._encoding = encoding
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(self._bytes, encoding=encoding))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        ending.open_streams()

    def written(self) -> str:
        sys.stdout.flush()
        return self._bytes.getvalue().decode(self._encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_no_escape_and_no_command_reaches_a_terminal_or_a_log(monkeypatch, encoding):
    for hostile in HOSTILE:
        streams = Streams(monkeypatch, encoding)
        click.echo(hostile)
        click.echo(click.style(hostile), nl=False)
        sys.stdout.write(f"\n{hostile}\n")
        output.show(Text(hostile))
        output.show(Text(f"x {hostile}"))
        printed = streams.written()
        assert not any(map(is_unseen, printed)), hostile
        assert not is_live_in_a_log(printed), hostile
        assert printed.strip()


def test_a_command_written_in_parts_is_not_live_and_one_of_our_own_stays(monkeypatch):
    streams = Streams(monkeypatch, "utf-8")
    for part in ("line\n", "  ", "::error::x", "\n", "a", "::b\n"):
        sys.stdout.write(part)
    click.echo("::error::ours", file=ending.own_stream(sys.stdout))
    assert streams.written() == "line\n  \\::error::x\na::b\n::error::ours\n"


def test_an_error_in_a_message_is_cut_and_inert(monkeypatch):
    Streams(monkeypatch, "utf-8")
    ending._print("error: \x1b[2J" + "x" * 100_000)
    sys.stderr.flush()
    printed = ending.own_stream(sys.stderr).buffer.getvalue().decode()
    assert "␛[2J" in printed
    assert "\x1b" not in printed
    assert len(printed) < 2 * ending.LONGEST_MESSAGE


def test_a_csv_has_no_formula_and_keeps_numbers():
    rows = list(csv.reader(io.StringIO(content(frame(), "csv").decode())))
    assert len(rows) == 1 + len(HOSTILE)
    assert not any(each.lstrip(" '")[:1] in "=+-@" and not each.startswith("'") for row in rows for each in row)
    assert not any(is_unseen(letter) for row in rows for each in row for letter in each)
    assert content(pd.DataFrame({"a": ["-1e-5", "dot/tree[n=4]"]}), "csv").decode() == "a\n-1e-5\ndot/tree[n=4]\n"


def test_excel_gets_texts_and_no_formula(tmp_path):
    write(lambda: [frame()], "xlsx", tmp_path / "report.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "report.xlsx").active
    assert {each.data_type for row in sheet.iter_rows() for each in row} == {"s"}
    assert sheet.max_row == 1 + len(HOSTILE)


def test_json_has_the_full_text_and_is_safe_to_print():
    printed = content(frame(), "json").decode()
    assert [record["field_0"] for record in json.loads(printed)] == list(HOSTILE)
    assert not any(map(is_unseen, printed))
    assert not is_live_in_a_log(printed)


def test_markdown_has_no_markup_and_no_mention():
    for printed in (content(frame(), "markdown").decode(), check_formats.check_markdown(hostile_check())):
        assert not any(map(is_unseen, printed.replace("\u200b", "")))
        assert not re.search(r"(@|&#64;)\w|<a|<script|\]\(http|<!channel", printed)


def test_junit_is_valid_xml_for_hostile_names_and_reasons():
    printed = check_formats.check_junit(hostile_check())
    root = ET.fromstring(printed)  # noqa: S314 - our own
    assert len(list(root.iter("testcase"))) == 2 * len(HOSTILE)
    assert not any(map(is_unseen, printed))


def test_a_message_has_no_mention_tag_or_link():
    for hostile in HOSTILE:
        inert = text.inert(hostile)
        assert not re.search(r"@\w|<[A-Za-z/!@#]|\]\(|&#?\w+;|```|\*\*|~~|\|\|", inert)
        assert not any(is_unseen(letter) for letter in inert.replace("\u200b", "")), hostile
        assert text.inert(inert) == inert
    assert text.inert("&#64;here ``` || **") == "&\u200b#64;here `\u200b`\u200b` |\u200b| *\u200b*"
    assert text.prose("@here a@") == "&#64;\u200bhere a&#64;"
    can_be_copied = "perfsvc show 'dot/tree[n=4]' < x"
    assert text.inert(can_be_copied) == can_be_copied


def test_a_name_is_no_markup_of_rich(monkeypatch):
    for name in ("[/]", "[red]x[/red]", ":boom:", "[link=http://x]y[/link]"):
        streams = Streams(monkeypatch, "utf-8")
        table = Table(name, title=name)
        table.add_row(name)
        output.show(table)
        assert streams.written().count(name) == 3, name


def test_a_long_name_is_cut_on_a_terminal_on_a_page_and_in_a_picture(monkeypatch):
    streams = Streams(monkeypatch, "utf-8")
    output.show(Text("x" * 100_000))
    assert 6_000 < len(streams.written()) < 6_200
    assert len(template("report.html.j2").environment.from_string("{{ name }}").render(name="x" * 100_000)) < 6_100
    assert text.label("a\nb\0\ufffe" + "x" * 100_000) == "a b␀\N{REPLACEMENT CHARACTER}" + "x" * 114 + "…"


def test_markdown_escapes_the_names_of_columns():
    (names, *_) = content(pd.DataFrame({"a|b\n<i>": ["x"]}), "markdown").decode().splitlines()
    assert names == "| a\\|b<br>&#60;i&#62; |"


def test_every_unseen_character_becomes_visible():
    letters = [chr(number) for number in range(sys.maxunicode + 1)]
    assert not any(is_unseen(letter) for letter in text.visible("".join(letters)))
    assert text.visible("größer, ✓ → 数 🙂\t\n") == "größer, ✓ → 数 🙂\t\n"


def test_a_long_reason_is_cut_and_says_by_how_much():
    assert text.cut("short") == "short"
    assert (
        text.cut("x" * 100_000) == "x" * text.LONGEST + f"… ({100_000 - text.LONGEST} more characters: --format json)"
    )
    assert len(text.cut("a\n" * 1000).splitlines()) == text.MOST_LINES


def test_a_database_can_store_hostile_texts():
    stored = "".join(FreeText().process_bind_param(hostile, None) for hostile in HOSTILE)
    assert "\0" not in stored
    stored.encode()


SHOWN_WITHOUT = """
postgresql://u:SECRET@h/db
postgresql://u:SECRET and SECRET@h/db
postgresql://u:SEC@SECRET@h/db
postgresql://u@h/db?password=SECRET
postgresql://u@h/db?password=SECRET SECRET&x=1
--db=postgresql://u@h/db?sslmode=a&password=SECRET
json://user:SECRET@h
postgresql://u@server:SECRET@h/db
postgresql://my user:SECRET SECRET@h/db
postgresql://u:12 SECRET@h/db
postgresql://u:SEC@SECRET SECRET@h/db
postgresql://u/x:SECRET@h/db
postgresql:/u:SECRET@h/db
postgresql:u:SECRET@h/db
postgresql://u:SEC?SECRET@h/db?sslmode=a
postgresql://u@h/db?pass%77ord=SECRET
postgresql://u@h/db?sslpassword=SECRET
host=h password = 'SECRET'
"""


def test_a_url_is_shown_without_its_password():
    urls = [*SHOWN_WITHOUT.strip().splitlines(), "postgresql://u:SEC\nSECRET@h/db"]
    shown_urls = {url: text.url_without_password(url) for url in urls}
    assert {url: seen for url, seen in shown_urls.items() if "SEC" in seen or "***" not in seen} == {}


def test_the_errors_of_a_database_have_no_password():
    url = resolve("postgresql://u@h/db?password=SECRET")
    assert "SECRET" not in shown(url)
    reason = Exception("no connection: host=h password='SECRET SECRET' postgresql://u:SECRET@h")
    with pytest.raises(DatabaseError) as caught, translated(url):
        raise OperationalError("", {}, reason)
    assert "SECRET" not in str(caught.value)


def test_a_url_without_a_password_stays():
    urls = (
        "https://h:8080/pages/",
        "https://h/a?x=1&y#z",
        "postgresql://u@h:5432/db?passfile=/x",
        "sqlite:///a:b@c.db",
    )
    assert tuple(map(text.url_without_password, urls)) == urls
    assert text.without_password("http://h:80/ and mail a@b") == "http://h:80/ and mail a@b"


def test_a_long_text_is_shortened_in_the_middle():
    shortened = {9: "abcdefgh", 8: "abcdefgh", 7: "abc…fgh", 6: "ab…fgh", 1: "…"}
    assert {most: text.shortened("abcdefgh", most) for most in shortened} == shortened


@pytest.mark.parametrize(
    "location",
    ["postgresql://u:SEC@SECRET@h/db", "postgresql://u/x:SECRET@h/db", "postgresql:/u:SECRET@h/db", "password=SECRET"],
)
def test_a_mistyped_url_of_a_database_is_refused_without_its_password(location):
    with pytest.raises(DatabaseError) as caught:
        resolve(location)
    assert "SEC" not in f"{caught.value} {caught.value.__cause__}"


def test_annotations_hold_no_second_command():
    commands = workflow_commands(check_review(hostile_check(), passed=False)).splitlines()
    assert all(re.match(r"::(error|notice) [^\x00-\x08\x0a-\x1f]*::", command) for command in commands)
    assert len(commands) == len(HOSTILE) + 1
    assert not re.search(r"##\w*\[", "".join(commands))
    assert not any(map(is_unseen, "".join(commands)))
