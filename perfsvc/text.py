"""Foreign text on its way out: case names, labels, commits, paths and the messages of compilers and exceptions.

Whoever writes such a text must not control what reads it. Each output has a function here that makes a text inert: the
terminal and CI logs, CSV and Excel, XML, Markdown and HTML, JSON, and messages. This module imports nothing of ours.
"""

import json
import re
from typing import Any
from urllib.parse import unquote

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""Controls but for tabs and line ends, what changes the direction of text or is invisible, and lone surrogates."""
_PLAIN = b"\t\n" + bytes(range(0x20, 0x7F))
"""The characters of ASCII that are seen, tabs and line ends."""
_FIRST_PICTURE, _DELETE = 0x2400, 0x7F
_CONTROLS = 0x20
_COLOUR = r"\x1b\[[0-9;]*m"
_COMMAND = re.compile(rf"^((?:{_COLOUR}|[^\S\n])*)::", re.MULTILINE)
_OLD_COMMAND = re.compile(r"##(?=\w*\[)")
_FORMULA = re.compile(r"[\s']*[=+\-@]|[\t\r]")
_SPECIAL = re.compile(r"[&<>`*~#@\[\]\\]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Characters with a meaning in Markdown or HTML; an underscore has none within a word, as in ``sm_90``."""
_URL = re.compile(r"(?:(?<!sqlite)(?<!file)://|(?<![a-z])postgres[a-z0-9+]*:)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

LONGEST = 2_000
"""Characters of a reason that people read; JSON has the full text."""
LONGEST_PARAGRAPH = 3 * LONGEST
"""Characters of a paragraph that people read, and of a name in it."""
LONGEST_LABEL = 120
"""Characters of a name in a picture, which is as wide as its names."""
MOST_LINES = 30
"""Lines of a reason that people read."""


# --- any output ------------------------------------------------------------------------------------------------------


def visible(text: str) -> str:
    """Return a text in which each control, invisible or invalid character is a visible one: ``␛`` for escape."""
    # Almost every text has only printable characters, and asking for them is many times faster than the expression.
    if text.isprintable():
        return text
    others = text.encode(errors="surrogatepass").translate(None, _PLAIN)  # a page has few, and the rest goes fastest so
    if others.decode(errors="surrogatepass").isprintable():
        return text
    return "\n".join(line if line.isprintable() else _UNSEEN.sub(_picture, line) for line in text.split("\n"))


def _picture(match: re.Match[str]) -> str:
    """Return a visible symbol for a control character."""
    number = ord(match[0])
    if number < _CONTROLS:
        return chr(_FIRST_PICTURE + number)
    return "\N{SYMBOL FOR DELETE}" if number == _DELETE else "\N{REPLACEMENT CHARACTER}"


def cut(text: str, most: int = LONGEST) -> str:
    """Return the beginning of a long text with the number of characters that are missing."""
    if len(text) <= most and text.count("\n") < MOST_LINES:
        return text
    lines = text.split("\n", MOST_LINES)
    shown = "\n".join(lines[:MOST_LINES])[:most]
    missing = len(text) - len(shown)
    return f"{shown}… ({missing} more characters: --format json)"


def shortened(text: str, most: int) -> str:
    """Return a text of at most this many characters: a longer one has ``…`` for its middle."""
    return text if len(text) <= most else f"{text[: (most - 1) // 2]}…{text[len(text) - most // 2 :]}"


def without_password(text: str) -> str:
    """Return a text that holds URLs, or settings of a connection, with the passwords replaced by ``***``."""
    hidden = re.sub(r"(://[^:/\s]*:)(?:[^\s]*|(?!\d+(?:[/?#,;:\s]|$))[^@\n]*)@", r"\1***@", text)
    return re.sub(r"(?i)(password(?:\s*=|['\"]\s*:)\s*)(?:'[^']*'|\"[^\"]*\"|[^&\s'\"]*)", r"\1***", hidden)


def url_without_password(url: str) -> str:
    """Return a text that is one URL and nothing else, or an option with a URL, without its password.

    A password may hold spaces here, which end a URL in other texts. The URL may be mistyped (``postgresql:/u:p@h``).
    """
    if not _URL.search(url):
        return without_password(url)
    start, mark, query = re.sub(rf"(?s)({_URL.pattern}[^:]*:).*@", r"\1***@", url).partition("?")
    fields = [field.partition("=") for field in query.split("&")]
    shown = (f"{key}=***" if "password" in unquote(key).lower() else key + is_ + value for key, is_, value in fields)
    return start + mark + "&".join(shown)


# --- terminal and CI logs --------------------------------------------------------------------------------------------


def printed(text: str) -> str:
    """Return a text for a terminal or the log of a CI job: no escape sequence and no workflow command is live."""
    return without_commands(visible(text))


def without_commands(line: str) -> str:
    r"""Return text in which CI finds no workflow command: ``::error`` at a line's beginning becomes ``\::error``."""
    return _OLD_COMMAND.sub(r"#\\#", _COMMAND.sub(r"\1\\::", line))


# --- files -----------------------------------------------------------------------------------------------------------


def spreadsheet_cell(text: str) -> str:
    """Return a text for a cell of CSV: an apostrophe before what a spreadsheet would take for a formula."""
    shown = visible(text)
    return f"'{shown}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else shown


def json_of_numbers(value: Any) -> str:
    """Return a value that holds NumPy arrays as JSON on one line; NaN is null."""
    import orjson  # only pages need it

    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as JSON; characters on which a terminal or CI could act are escaped.

    Values without a JSON type become text. If ``indent`` is None, the JSON is one line.
    """
    written = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, default=str)
    # Most JSON on one line is printable, and asking for that is many times faster than the expression.
    return _OLD_COMMAND.sub(r"#\\u0023", written if written.isprintable() else _UNSEEN.sub(_escape, written))


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def xml_text(text: str) -> str:
    """Return a text without the characters that XML forbids, and without invisible ones."""
    return re.sub("[\ufffe\uffff]", "\N{REPLACEMENT CHARACTER}", visible(text))


# --- Markdown and messages -------------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Return a text on one line that Markdown and HTML show literally, cut if it is long.

    Special characters become HTML entities such as ``&#42;`` for ``*``; line ends become ``<br>``. A zero-width space
    breaks ``@name``: GitHub and GitLab look for mentions when the entities are characters again.
    """
    escaped = _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", re.sub(r"\r\n?", "\n", cut(text)))
    return re.sub(r"&#64;(?=\w)", "\\g<0>\u200b", visible(escaped)).replace("\n", "<br>")


def unlinked(text: str) -> str:
    """Return a text as ``prose`` does; addresses and ``#12`` get an invisible space, so that GitHub makes no link."""
    return re.sub(r"(?i)(?<=:)(?=//)|(?<=www)(?=\.)|(?<=&#35;)(?=\d)|(?<=\bGH)(?=-\d)", "\u200b", prose(text))


def code(text: str) -> str:
    """Return a name as code in Markdown, cut if it is long."""
    return f"<code>{prose(text)}</code>" if re.search(r"[`\r\n]", text) else f"`{visible(cut(text))}`"


def cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def inert(text: str) -> str:
    """Return a text for a message, in which a chat program finds no mention, tag, link, block, entity or hidden sign.

    A zero-width space breaks ``@name``, ``<tag``, ``](link``, ``&#64;``, and repeated signs such as ``**``. So an
    ``@everyone`` in a commit rings no phone, and no commit hides the lines after it. A chat program may still show a
    word in bold. A case such as ``dot/tree[n=4]`` stays as it is, because people copy it into a command.
    """
    shown = _UNSEEN.sub("", re.sub(r"\r\n?", "\n", text))
    return re.sub(r"@(?=\w)|<(?=[A-Za-z/!@#:?])|\](?=[(\[])|&(?=#?\w+;)|([*~|`])(?=\1)", "\\g<0>\u200b", shown)


def label(text: str) -> str:
    """Return a name on one line for a picture, cut if it is long."""
    line = " ".join(xml_text(text).split())
    return line if len(line) <= LONGEST_LABEL else f"{line[: LONGEST_LABEL - 1]}…"
