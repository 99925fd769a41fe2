"""The documents name what exists, all of it, and nothing else."""

import ast
import inspect
import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import click

import perfsvc
from perfsvc import model
from perfsvc.api import StoredResults, open_results
from perfsvc.cli import cli
from perfsvc.config import Settings
from perfsvc.config.keys import ARRAYS, KEYS, TABLES, SettingKey
from perfsvc.report.export import schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# --- docs/reference/cli*.md -------------------------------------------------------------------------------------------


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below a group as it is typed, groups included."""
    context = click.Context(group)
    for child in group.list_commands(context):
        command = group.get_command(context, child)
        assert command is not None
        yield f"{name} {child}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {child}")


def sections(page: str) -> dict[str, str]:
    """The text below each heading whose title is a command in backticks."""
    parts = re.split(r"^#+ `(perfsvc[^`]*)`$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


COMMANDS = {"perfsvc": cli, **dict(commands(cli, "perfsvc"))}
COMMAND_PAGES = sorted((DOCS / "reference").glob("cli*.md"))
SECTIONS = {name: text for page in COMMAND_PAGES for name, text in sections(text_of(page)).items()}


def words_of(command: click.Command) -> set[str]:
    """The options and arguments of a command as they are typed."""
    arguments = {item.human_readable_name.strip("[].") for item in command.params if isinstance(item, click.Argument)}
    return arguments | {
        word
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for word in (*option.opts, *option.secondary_opts)
    }


def documented(section: str) -> set[str]:
    """The options and arguments that open a row of the section's table."""
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return {word.split()[0] for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_every_command_is_documented_and_every_documented_command_exists():
    assert set(SECTIONS) == set(COMMANDS)


def test_every_option_of_a_command_is_documented_and_every_documented_option_exists():
    words = {name: words_of(command) for name, command in COMMANDS.items()}
    assert {name: documented(SECTIONS[name]) for name in COMMANDS} == words


def test_a_command_and_its_options_have_help():
    options = [(name, item) for name, command in COMMANDS.items() for item in command.params]
    options = [(name, item.name) for name, item in options if isinstance(item, click.Option) and not item.help]
    assert options == []
    assert [name for name, command in COMMANDS.items() if not command.help] == []


def typed(page: Path) -> list[list[str]]:
    """The arguments of every ``perfsvc`` command in the shell blocks of a page."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", text_of(page), re.MULTILINE | re.DOTALL)
    lines = re.findall(r"(?:^|[\s/])perfsvc ([^#&|>\n]*)", "\n".join(blocks))
    return [shlex.split(line) for line in lines]


def parse(group: click.Group, arguments: list[str]) -> None:
    """Parses arguments as the command would, without running it; raises ``click.UsageError``."""
    command = group.get_command(click.Context(group), arguments[0])
    assert command is not None, arguments
    if isinstance(command, click.Group) and not (arguments[1:] == [] and command.invoke_without_command):
        parse(command, arguments[1:])
    else:
        command.make_parser(click.Context(command)).parse_args(arguments[1:])


def test_every_command_that_a_page_types_can_be_typed():
    wrong = []
    for place, arguments in [(page.name, arguments) for page in PAGES for arguments in typed(page)]:
        try:
            parse(cli, arguments)
        except click.UsageError as error:
            wrong.append((place, arguments, error.message))
    assert wrong == []


# --- docs/reference/glossary.md ---------------------------------------------------------------------------------------

GLOSSARY = text_of(DOCS / "reference" / "glossary.md")
ENTRIES = [
    (word, name, meaning)
    for word, name, meaning in re.findall(r"^\| ([^|(]+?)(?: \(`(\w+)`\))? \| (.+) \|$", GLOSSARY, re.MULTILINE)
    if word not in {"word", "---"}
]
MOST_WORDS = 60
CLASSES = [item for _, item in inspect.getmembers(model, inspect.isclass) if item.__module__.startswith(model.__name__)]
MODEL = Path(model.__file__).parent
REFERENCE = [*(DOCS / "reference").glob("*.md"), *(DOCS / "explanation").glob("*.md"), *(DOCS / "how-to").glob("*.md")]


def names_of_the_model() -> set[str]:
    """The public classes and type aliases of the model."""
    statements = [node for source in MODEL.glob("*.py") for node in ast.parse(text_of(source)).body]
    targets = [target for node in statements if isinstance(node, ast.Assign) for target in node.targets]
    aliases = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    aliases.discard("__all__")
    return aliases | {item.__name__ for item in CLASSES}


def test_the_glossary_is_short_and_no_word_stands_twice():
    words = {word for word, _, _ in ENTRIES}
    assert len(ENTRIES) == len(words) <= MOST_WORDS


def test_every_class_of_the_glossary_exists():
    assert {name for _, name, _ in ENTRIES if name} <= names_of_the_model()


def test_a_page_explains_each_value_of_a_choice():
    meanings = {name: set(re.findall(r"`([\w ]+)`", meaning)) for _, name, meaning in ENTRIES if name}
    pages = [set(re.findall(r"`([\w ]+)`", text_of(page))) for page in REFERENCE]
    choices = {item.__name__: {member.value for member in item} for item in CLASSES if issubclass(item, StrEnum)}
    explained = {
        name: any(values <= words for words in ([meanings[name]] if name in meanings else pages))
        for name, values in choices.items()
    }
    assert explained == dict.fromkeys(choices, True)


def test_the_code_uses_each_word():
    """The code outside the model names the class of a word, or any code uses the word."""
    code = {source: text_of(source) for source in (ROOT / "perfsvc").rglob("*.py")}
    found = {source: set(re.findall(r"\w+", text)) for source, text in code.items()}
    beside = set().union(*(words for source, words in found.items() if source.parent != MODEL))
    words = {word.lower() for word in set().union(*found.values())}
    every = "\n".join(code.values()).lower()

    def is_used(word: str) -> bool:
        several = " " in word and re.search(rf"\b{word.replace(' ', '[ _]?')}(?:s|es)?\b", every)
        return bool(several) or not words.isdisjoint({word, f"{word}s", f"{word}es"})

    assert [word for word, name, _ in ENTRIES if not (name in beside if name else is_used(word.lower()))] == []


# --- docs/decisions.md -----------------------------------------------------------------------------------------------


def test_every_dependency_says_why_it_earns_its_place():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    wanted = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in wanted} - {project["name"]}
    assert (
        set(re.findall(r"^\| ([\w-]+) \| (?:`\w+`|runtime) \|", text_of(DOCS / "decisions.md"), re.MULTILINE)) == names
    )


# --- links and the README --------------------------------------------------------------------------------------------


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in titles}


def links(page: Path) -> list[str]:
    """The targets of a page's links that lead to files of the repository; code is no place for links."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text_of(page), flags=re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", target)]


def resolves(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not heading or heading in headings(target))


def test_every_relative_link_of_a_page_resolves():
    assert [(page.name, link) for page in PAGES for link in links(page) if not resolves(page, link)] == []


def quick_start() -> list[str]:
    """The fenced ``sh`` blocks of the README's Quick start."""
    section = re.split(r"^## ", text_of(ROOT / "README.md").partition("## Quick start\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_the_first_screen_shows_real_times():
    output = re.findall(r"^```text\n(.*?)^```$", text_of(ROOT / "README.md"), re.MULTILINE | re.DOTALL)[0]
    results = [line for line in output.splitlines() if line.startswith("✓")]
    assert results
    assert all(re.search(r"\d (?:ns|µs|ms|s)\b", line) for line in results)


def test_the_quick_start_is_two_blocks_the_main_job_and_the_tests_with_all_that_they_need():
    main_job, tests = quick_start()
    assert "perfsvc run --device cpu" in main_job
    assert "pytest" in tests
    for block in (main_job, tests):
        assert block.startswith("python3 -m venv .venv")
        assert "pip install" in block
        assert not re.search(r"^\s*\$ ", block, re.MULTILINE)


def mailed(folder: Path, line: str, pull: int, code: int | None) -> tuple[str, str | None]:
    """Run the line with stand-ins that end with these codes; return the log of the night, and what was mailed."""
    programs = {
        "bin/git": f"echo pulled; exit {pull}",
        "bin/mail": 'printf "%s\\n" "$@" >mailed; cat >>mailed',
        ".venv/bin/perfsvc": f'printf "%s\\n" "$@"; exit {code}',
    }
    for name, script in programs.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
    command = line.replace("\\%", "%").replace("/srv/kernels", str(folder))
    subprocess.run(["sh", "-c", command], env={"PATH": f"{folder}/bin:/usr/bin:/bin"}, check=code == 0)
    message = folder / "mailed"
    return (folder / "nightly.log").read_text(), message.read_text() if message.exists() else None


def test_the_crontab_line_runs_and_mails_what_failed(tmp_path):
    (line,) = re.findall(r"^15 2 \* \* \*  (.*)$", text_of(DOCS / "how-to" / "schedule.md"), re.MULTILINE)
    assert not re.search(r"(?<!\\)%", line)  # cron would end the command there
    head, log = "-s\nperfsvc ended with 1\nteam@example.com\n", "pulled\nnightly\n"
    assert mailed(tmp_path / "done", line, 0, 0) == (log, None)
    assert mailed(tmp_path / "slower", line, 0, 1) == (log, f"{head}{log}")
    log, message = mailed(tmp_path / "not-pulled", line, 1, None)
    assert message == f"{head}{log}"


# --- docs/reference/configuration.md ---------------------------------------------------------------------------------


CONFIGURATION = text_of(DOCS / "reference" / "configuration.md")
SETTINGS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", CONFIGURATION, re.MULTILINE | re.DOTALL))


def row(key: SettingKey) -> str:
    """A key as the page has it."""
    written = key.written(key.default)
    default = "e.g. " if key.example is not None else ""
    return f"| `{key.name}` | {default}`{written}` | {key.meaning} |"


def rows(section: str) -> list[str]:
    return re.findall(r"^\| `.*$", section, re.MULTILINE)


def test_every_key_of_a_table_is_on_the_page_and_no_other():
    for table in ("", *TABLES):
        section = SETTINGS[f"`[{table}]`" if table else "At the top"]
        keys = [key for key in KEYS.values() if key.table == table and key.dotted not in ARRAYS]
        assert all(key.meaning for key in keys)
        assert rows(section) == [row(key) for key in keys]
        assert not table or TABLES[table] in section


def test_the_keys_of_an_array_of_tables_are_on_the_page():
    for array, keys in ARRAYS.items():
        section = SETTINGS[f"`[[{array}]]`"]
        assert all(key.meaning for key in (KEYS[array], *keys.values()))
        assert rows(section) == [row(key) for key in keys.values()]
        assert KEYS[array].meaning in section


def test_the_page_has_a_section_for_every_table():
    tables = {name for name in SETTINGS if name.startswith("`[")}
    assert tables == {f"`[{table}]`" for table in TABLES} | {f"`[[{array}]]`" for array in ARRAYS}


def test_the_file_that_the_page_shows_can_be_used():
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", CONFIGURATION, re.MULTILINE | re.DOTALL)
    assert Settings(**tomllib.loads(shown)).notify.page == "https://perf.example.org/"


# --- docs/reference/python-api.md ------------------------------------------------------------------------------------


PYTHON_API = text_of(DOCS / "reference" / "python-api.md")
MEASURED = {column.name for column in schema.MEASUREMENTS} - {"status", "reason", "cure"}
FRAMES = {
    "Runs": schema.RUNS,
    "Measurements": schema.MEASUREMENTS,
    "Summary": tuple(column for column in schema.SUMMARY if column.name not in MEASURED),
    "Samples": schema.SAMPLES,
    "Verdicts": schema.VERDICTS,
    "Findings": schema.FINDINGS,
    "Series of findings": schema.FINDING_SERIES,
    "History": schema.HISTORY,
}


def section(title: str) -> str:
    """Return the text below a heading of the page."""
    (text,) = re.findall(rf"^#+ {title}\n(.*?)(?=^#|\Z)", PYTHON_API, re.MULTILINE | re.DOTALL)
    return str(text)


def test_a_table_has_the_columns_of_its_frame_in_order_with_dtype_and_unit() -> None:
    row = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| ([^|]*)\| \S.* \|$", re.MULTILINE)
    shown = {
        title: [(name, dtype, unit.strip()) for name, dtype, unit in row.findall(section(title))] for title in FRAMES
    }
    assert shown == {
        title: [(column.name, column.dtype, column.unit) for column in columns] for title, columns in FRAMES.items()
    }


def test_the_summary_has_the_columns_that_its_section_describes() -> None:
    dropped = {column.name for column in schema.MEASUREMENTS} - {column.name for column in schema.SUMMARY}
    sentence = section("Summary").partition("except")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == dropped
    assert [column.name for column in schema.SUMMARY][:4] == list(schema.KEYS)


def signature(name: str, function: object) -> str:
    """Return a function as the page writes it: names and defaults, without types and ``self``."""
    assert callable(function)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return f"{name}{inspect.Signature(parameters)}"


def test_the_page_lists_every_function_with_its_arguments_and_defaults() -> None:
    functions = {
        signature(name, function)
        for name, function in inspect.getmembers(StoredResults, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    }
    assert set(re.findall(r"^\| `(\w+\(.*?\))` \|", section("Functions"), re.MULTILINE)) == functions


def test_the_page_opens_a_database_with_the_arguments_of_the_function() -> None:
    assert f"`{signature('perfsvc.open', perfsvc.open)}`" in PYTHON_API
    assert signature("open", open_results) == signature("open", perfsvc.open)
