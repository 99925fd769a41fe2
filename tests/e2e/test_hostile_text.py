"""Hostile text in every stored field, shown by every command in every format: nothing of it may be live.

What is live is judged by real parsers. A document of hostile texts must have the structure of the same document of
harmless texts: the same tags, attributes, rows and columns. Each field gets a payload of each group of payloads, and
each format gets all payloads.
"""

import csv
import functools
import io
import json
import re
import shutil
import sys
import unicodedata
import warnings
from collections import Counter
from html.parser import HTMLParser
from unittest import mock
from xml.etree import ElementTree as ET

import openpyxl
import pytest
import requests
from markdown_it import MarkdownIt

from perfsvc.config import Settings
from perfsvc.notify.fake import FakeNotifier
from perfsvc.notify.notifier import AppriseNotifier
from perfsvc.service.nightly.log import NightLog
from perfsvc.service.notify.notify import notify
from perfsvc.store import Store
from perfsvc.text import LONGEST_PARAGRAPH
from tests.e2e.stored_text import GROUPS, HARMLESS, PAYLOADS, fill, payload_of, replace_texts, stored

TABLES = (
    ("runs",),
    ("runs", "history"),
    ("runs", "environment", "3"),
    ("runs", "environment", "1", "3"),
    ("report", "--all"),
    ("findings", "--all"),
    ("findings", "show", "1"),
    ("findings", "show", "2"),
    ("findings", "show", "3"),
    ("baseline", "show"),
    ("expect", "list", "--all"),
    ("compare", "1", "3"),
    ("compare", "@baseline", "3"),
)
"""Commands that print the texts of the database; ``show`` comes with the name of a case."""
LONGEST_TABLE = 200 * LONGEST_PARAGRAPH
ADDRESSES = {
    "discord": "discord://1234567890/abcdefghijklmn",
    "telegram": "tgram://123456789:abcdefghijklmnopqrstuvwxyzabcdefghi/12345",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#c",
    "plain": "syslog://",
    "webhook": "json://localhost/hook",
}


INVISIBLE = frozenset(
    letter
    for letter in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and letter not in "\t\n"
)


def unseen(text):
    """Return the control, invisible and invalid characters of a text."""
    return sorted(f"U+{ord(letter):04X}" for letter in INVISIBLE.intersection(text))


def live_commands(text):
    """Return what a CI server would take for a workflow command."""
    return [line for line in text.splitlines() if line.lstrip().startswith("::")] + re.findall(r"##\w*\[", text)


MARKERS = {("path", "d"), ("circle", "cx", "cy", "r"), ("rect", "height", "width", "x", "y")}
"""The shapes of a point in a picture, which the series get in the order of their names."""


class Structure(HTMLParser):
    """Counts the elements of pages with the names of their attributes, and keeps what may run or lead elsewhere."""

    def __init__(self):
        super().__init__()
        self.elements, self.live = Counter(), []

    def handle_starttag(self, tag, attributes):
        element = (tag, *sorted(name for name, _ in attributes))
        self.elements["marker" if element in MARKERS else element] += 1
        for name, value in attributes:
            leads = name in {"href", "src", "action", "formaction", "srcset", "xlink:href"}
            if name.startswith("on") or (
                leads and re.match(r"\s*[a-z]+:", value or "", re.IGNORECASE) and value != "data:,"
            ):
                self.live.append((tag, name, value))

    def handle_comment(self, _):
        self.elements["comment"] += 1

    def handle_pi(self, _):
        self.elements["instruction"] += 1

    def unknown_decl(self, _):
        self.elements["declaration"] += 1


def structure(pages):
    read = Structure()
    for page in pages:
        read.feed(page)
        read.close()
        read.reset()
    return read.elements, read.live


def rendered(markdown):
    """Return Markdown as HTML as GitHub renders it: tables, struck text and raw HTML, with line breaks as elements."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("filled") / "perfsvc.db"
    fill(path)
    return path


class Shown:
    """A workplace whose database holds a payload in front of every text, and what commands show of it.

    Attributes:
        payload: returns the payload that belongs to a text.
        texts: the texts that have got a payload.
    """

    def __init__(self, workplace, filled, payload):
        self.perfsvc, self.payload, self.texts = workplace, payload, set()
        shutil.copy(filled, workplace.database)
        self.columns = replace_texts(workplace.database, self.change)
        ((self.case,),) = workplace.rows("SELECT name FROM cases WHERE variant = ?", self.change("shared"))
        self.written = 0

    def change(self, text):
        self.texts.add(text)
        return stored(f"{self.payload(text)}{text}")

    def __call__(self, *arguments):
        ended = self.perfsvc(*arguments)
        assert ended.code in {0, 1, 4}, f"{arguments}: {ended.err[-2000:]}"
        assert "Traceback" not in ended.err
        return ended

    def tables(self):
        yield "show", self("show", "--", self.case).out
        for arguments in TABLES:
            yield " ".join(arguments), self(*arguments).out

    def json(self):
        yield "show", self("show", "--format", "json", "--", self.case).out
        for arguments in TABLES:
            yield " ".join(arguments), self(*arguments, "--format", "json").out
        yield "report", self("report", "--all", "--format", "json").out

    def csv(self):
        csv.field_size_limit(1_000_000)
        for more in ((), ("--summary",)):
            yield list(csv.reader(io.StringIO(self("report", "--all", "--format", "csv", *more).out)))

    def sheets(self):
        for more in ((), ("--summary",)):
            path = self._file("xlsx")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self("report", "--all", "--output", path, *more)
            yield openpyxl.load_workbook(path).active

    def markdown(self):
        yield self("report", "--all", "--format", "markdown").out
        yield self("compare", "1", "3", "--format", "github").out

    def junit(self):
        return self("compare", "1", "3", "--format", "junit").out

    def pages(self):
        folder = self.perfsvc.folder / "site"
        self("dashboard", "build", folder)
        return [path.read_text() for path in sorted(folder.rglob("*.html"))]

    def report(self):
        return self("report", "--all", "--format", "html").out

    def picture(self):
        path = self._file("svg")
        self("plot", "3", "--output", path)
        return path.read_text()

    @functools.cached_property
    def message(self):
        """Return the message of the newest night, as a target gets it."""
        notifier = FakeNotifier()
        copied = shutil.copy(self.perfsvc.database, self._file("db"))  # sending adds events to the findings
        settings = Settings(notify={"targets": {"team": "TEAM"}, "about": ("new", "resolved", "failed")})
        with Store.open(copied) as store:
            quick = {"notifier": lambda: notifier, "sleep": lambda _: None}
            notify(store, 2, settings, lambda _: None, environment={"TEAM": "fake://team"}, **quick)
        ((_, message),) = notifier.sent
        return message

    def _file(self, suffix):
        self.written += 1
        return self.perfsvc.folder / f"{self.written}.{suffix}"


@pytest.fixture(scope="module")
def harmless(filled, new_workplace):
    return Shown(new_workplace(), filled, lambda _: HARMLESS)


@pytest.fixture(scope="module", params=GROUPS)
def hostile(request, filled, new_workplace):
    return Shown(new_workplace(), filled, functools.partial(payload_of, request.param))


@pytest.fixture(scope="module")
def expected(harmless):
    """The structure of each document of harmless texts."""
    return {
        "csv": [(len(rows), {*map(len, rows)}) for rows in harmless.csv()],
        "xlsx": [(sheet.max_row, sheet.max_column) for sheet in harmless.sheets()],
        "markdown": structure(map(rendered, harmless.markdown())),
        "junit": Counter((each.tag, *sorted(each.attrib)) for each in ET.fromstring(harmless.junit()).iter()),  # noqa: S314 - our own
        "pages": structure(harmless.pages()),
        "report": structure([harmless.report()]),
        "lines": len(harmless.message.body.splitlines()),
    }


def test_each_payload_is_in_front_of_several_texts_of_most_stored_fields(hostile):
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(PAYLOADS)
    assert len(hostile.columns) > 80
    assert min(Counter(map(hostile.payload, hostile.texts)).values()) > 12


def test_nothing_is_live_on_a_terminal_or_in_a_log(hostile):
    for command, printed in hostile.tables():
        assert unseen(printed) == [], command
        assert live_commands(printed) == [], command
        assert len(printed) < LONGEST_TABLE, command


def test_json_has_the_full_texts_and_is_safe_to_print(hostile):
    texts = ""
    for command, printed in hostile.json():
        assert unseen(printed) == [], command
        assert live_commands(printed) == [], command
        texts += json.dumps(json.loads(printed))
    for written in ("an illegal access", "the GPU was shared", "slower in 8 pairs", "fewer warps", "bob"):
        assert json.dumps(hostile.change(written))[1:-1] in texts
    for payload in map(hostile.payload, hostile.texts):
        assert json.dumps(stored(payload))[1:-1] in texts


def test_no_cell_of_csv_is_a_formula(hostile, expected):
    for rows, shape in zip(hostile.csv(), expected["csv"], strict=True):
        assert (len(rows), {*map(len, rows)}) == shape
        for cell in (cell for row in rows for cell in row):
            assert unseen(cell) == []
            is_number = re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell)
            assert is_number or not re.match(r"\s*[=+\-@]|[\t\r\n]", cell), cell[:50]


def test_no_cell_of_excel_is_a_formula(hostile, expected):
    for sheet, shape in zip(hostile.sheets(), expected["xlsx"], strict=True):
        assert (sheet.max_row, sheet.max_column) == shape
        cells = [cell for row in sheet.iter_rows() for cell in row]
        assert {cell.data_type for cell in cells} <= {"s", "inlineStr", "n", "b", "d"}
        assert not any(cell.hyperlink for cell in cells)
        assert not any(unseen(cell.value) for cell in cells if isinstance(cell.value, str))


def test_markdown_renders_to_the_tags_of_harmless_text(hostile, expected):
    pages = list(hostile.markdown())
    elements, live = structure(map(rendered, pages))
    breaks = {name: count for name, count in elements.items() if name[0] != "br"}
    assert breaks == {name: count for name, count in expected["markdown"][0].items() if name[0] != "br"}
    assert live == []
    for page in pages:
        assert unseen(page.replace("\u200b", "")) == []
        assert live_commands(page) == []
        outside_code = re.sub(r"<code>.*?</code>", "", rendered(page), flags=re.DOTALL)
        assert re.findall(r"@\w+", outside_code) == []


def test_junit_has_the_elements_of_harmless_text(hostile, expected):
    printed = hostile.junit()
    root = ET.fromstring(printed)  # noqa: S314 - our own
    assert Counter((each.tag, *sorted(each.attrib)) for each in root.iter()) == expected["junit"]
    assert unseen(printed) == []
    assert live_commands(printed) == []


def test_pages_have_the_tags_of_harmless_text(hostile, expected):
    for name, pages in (("pages", hostile.pages()), ("report", [hostile.report()])):
        elements, live = structure(pages)
        assert elements == expected[name][0]
        assert live == []
        assert [unseen(page) for page in pages] == [[]] * len(pages)


def test_a_picture_shows_names_as_text(hostile):
    picture = hostile.picture()
    ET.fromstring(picture)  # noqa: S314 - our own
    assert unseen(picture) == []
    assert structure([picture])[1] == []
    assert len(picture) < 1_000_000


def test_a_message_has_no_mention_link_or_block(hostile, expected):
    message = hostile.message
    assert len(message.body.splitlines()) == expected["lines"]
    assert len(message.body) < 10 * LONGEST_PARAGRAPH
    for text in (message.title, message.body):
        assert unseen(text.replace("\u200b", "")) == []
        assert not re.search(r"@\w|<[A-Za-z/!@#:?]|\]\(|&#?\w+;|```|\*\*|~~|\|\|", text)


def test_no_target_gets_a_live_mention(hostile, monkeypatch):
    sent = []

    def request(session, method, url, **options):
        sent.append(options.get("json") or json.loads(options["data"]))
        return mock.Mock(status_code=200, content=b"ok", text="ok", headers={}, json=lambda: {"ok": True})

    monkeypatch.setattr(requests.sessions.Session, "request", request)
    monkeypatch.setattr("syslog.syslog", lambda _level, line: sent.append({"text": line}))
    for target, address in ADDRESSES.items():
        sent.clear()
        AppriseNotifier().send(hostile.message, address)
        texts = re.findall(r'"(?:text|content|title|message)": "((?:[^"\\]|\\.)*)"', json.dumps(sent))
        assert texts, target
        for text in (json.loads(f'"{text}"') for text in texts):
            without_ours = re.sub(r"</?b>", "", text) if target == "telegram" else text
            assert not re.search(r"@\w|<[A-Za-z/!@#:?]|\]\(|```", without_ours), target
            assert unseen(text.replace("\u200b", "").replace("\r\n", "\n")) == [], target


def test_the_log_of_a_night_is_json_and_safe_to_print(tmp_path):
    for number, payload in enumerate(PAYLOADS.values()):
        written = f"{payload}an error"
        with NightLog(tmp_path, number, mock.Mock()) as log:
            log.report(written, case=written)
            log.step(written)
            log.fail(RuntimeError(written))
        content = log.path.read_bytes().decode()
        lines = content.removesuffix("\n").split("\n")
        assert [json.loads(line)["event"] for line in lines] == [written, "done", f"RuntimeError: {written}"]
        assert (unseen(content), live_commands(content)) == ([], [])
