# ruff: noqa: S608 - the names of tables and columns are our own
"""Shared by tests of hostile text: a database in which every text that a stranger may write is hostile."""

import importlib.util
import json
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from perfsvc.model import (
    Case,
    CaseExplanation,
    Cause,
    ChangeKind,
    Direction,
    FindingState,
    FullEnvironment,
    Judgement,
    Measurement,
    Provenance,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
)
from perfsvc.store import RunState, StageRow, StageState, Store
from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.column_types import FreeText

PAYLOADS = {
    "escape": "\x1b[2J\x1b]0;title\x07\x1b]8;;http://x\x1b\\\x9b2J\x90q\x85",
    "return": "x\r::error::owned",
    "invisible": "\u202eevil\u2066\u200fa\u200b\u200d\ufeff\U000e0041b",
    "github": "::error file=a::owned",
    "github_later": "x\n  ::set-output name=a::b\x0b::warning::c\u2028::error::d",
    "azure": "##vso[task.setvariable]x ##[error]y",
    "hyperlink": '=HYPERLINK("http://x","y")',
    "dde": "+1+cmd|' /C calc'!A0",
    "sum": "@SUM(1+1)",
    "minus": "-2+3",
    "tab": "\t=1+1",
    "line_formula": "\n=1+1",
    "script": '<script>alert(1)</script><img src=x onerror=alert(1)><a href="http://x">y</a>',
    "svg": "\"'><svg onload=alert(1)>",
    "comment": "<!-- <b>",
    "javascript": "javascript:alert(1)",
    "link": "[y](http://x) ![y](http://x) <http://x> [a]: http://x",
    "table": "a | b \\| c |",
    "code": "`a` ```\nb``` ~~~ \\`",
    "markdown": "**bold** _a_ # head\n# head\n- item\n> quote\n---\n\n    code",
    "everyone": "@everyone @here <@123> <!channel> <#C1> <!subteam^1>",
    "cdata": "</system-out>]]>&lt;\ufffe\uffff",
    "nul": "nul\0 lone \udcff\ud800",
    "math": "$\\frac{$ $x$ \\$ &lt;b&gt; &#60; &amp;",
    "rich": "[red]x[/red] [/] [link=http://x]y[/link] :boom:",
    "format": "%s %d {0} {x} {{ 7*7 }} ${{ x }} a/b[n=1],c=d; e: f..g#h?i",
    "long": "x" * 100_000,
    "lines": "a\n" * 1000,
}
GROUPS = {
    "terminal": ("escape", "return", "invisible", "nul"),
    "commands of CI": ("github", "github_later", "azure", "format"),
    "formulas": ("hyperlink", "dde", "sum", "minus", "tab", "line_formula"),
    "size": ("long", "lines"),
    "pages": ("script", "svg", "comment", "javascript", "cdata", "math"),
    "Markdown": ("link", "table", "code", "markdown", "everyone", "rich"),
}
"""Payloads that attack alike. A database holds the payloads of one group, each in front of some of its texts."""
HARMLESS = "word "

OURS = {
    "artifacts": {"sha256", "kind"},
    "imports": {"digest", "format"},
    "binaries": {"digest", "record", "signatures"},
    "binary_files": {"role", "sha256"},
    "python_codes": {"digest", "record", "signatures"},
    "facts": {"digest", "instructions", "sass"},
    "devices": {"kind"},
    "nights": {"signatures"},
    "measurements": {"slowdowns", "xids", "others"},
    "confirmation_runs": {"side", "slowdowns"},
    "profile_metrics": {"name"},
    "profiles": {"report_sha256"},
    "stages": {"name"},
    "expectations": {"kind"},
    "cases": {"name", "point"},
    "environments": {"parts", "parts_digest"},
    "full_environments": {"digest", "parts"},
    "explanations": {"reasons"},
    "bisections": {"answer"},
}
"""Columns whose texts perfsvc makes of nothing that a stranger wrote, or of other columns."""
OUR_METRICS = ("time", "energy_j")
UNSET = {
    "runs": ("git_branch", "cpu", "perfsvc_version", "python_version"),
    "checks": ("git_branch", "perfsvc_version"),
    "profiles": ("chip", "profiler_version"),
    "measurements": ("stopped",),
    "checked_kernels": ("source",),
}
"""Columns that ``fill`` leaves empty, and that get a text too."""


@cache
def past():
    """The module that fills a database with a row in every table."""
    path = Path(__file__).parents[1] / "data" / "schemas" / "make.py"
    spec = importlib.util.spec_from_file_location("make_past", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(path: Path) -> None:
    """Make a database with a row in every table, and a newest run with cases of every status and open findings."""
    make = past()
    with Store.open(path) as store:
        make.fill(store)
        third(store, make)


def third(store: Store, make) -> None:
    """Store a run after those of ``past``: cases of every status, verdicts of every kind, an open finding."""
    started = datetime(2025, 1, 3, tzinfo=UTC)
    origin = Provenance(started, "perfsvc run", "kernels", "fed", label="third", host="box", scope="kernels")
    night = store.nights.begin(
        host="box", started=started, suite="kernels", command_line="perfsvc nightly", settings={}
    )
    run = store.runs.begin(replace(origin, packages={"triton": "3"}), night=night)
    parts = {"host.kernel": "6.2", "variable.CUDA_Y": "3"}
    store.devices.put_full_environment(run, FullEnvironment(parts, {"GPU-1": {"gpu.ecc": "off"}}))
    other, wrong, skipped = (replace(make.NAIVE, variant=name) for name in ("other", "wrong", "skipped"))
    for case, status in ((make.NAIVE, Status.FAILED), (wrong, Status.WRONG), (skipped, Status.SKIPPED)):
        make.put(store, run, Measurement(case, "GPU-1", 0, status, reason="an illegal access", cure="mend"), None, None)
    for case, seconds in ((make.SHARED, 0.5), (other, 0.75)):  # not alike, or the order of the names decided
        ok = Measurement(case, "GPU-1", 0, Status.OK, samples_s=(seconds,), metrics={"overlap": 0.75, "energy_j": 1.0})
        make.put(store, run, ok, seconds, None, relative_to="copy")
    store.runs.end(run, RunState.FINISHED)
    moved, new, broken = (make_series(make, case) for case in (make.SHARED, other, make.NAIVE))
    slower = Judgement(moved, Verdict.REGRESSION, "", 1.5, 1.4, 1.6, 1, run, 0.25, 0.5, 0.125, 2, 1, cause=Cause.KERNEL)
    own = replace(slower, series=replace(moved, metric="overlap"))
    verdicts = [slower, own, Judgement(new, Verdict.NEW), Judgement(broken, Verdict.BROKEN, "an illegal access")]
    missing = Judgement(make_series(make, replace(other, variant="gone")), Verdict.MISSING, "no result")
    store.verdicts.put(run, [*verdicts, missing])
    root_cause = RootCause(
        "fed..abc",
        "slower in 8 pairs",
        tuple(Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER) for judged in (slower, own)),
    )
    (finding,) = store.findings.update(run, [], [root_cause]).raised
    store.findings.assign(finding, "bob", by="ann")
    for number in (1, finding):  # the first was ignored until a past day, after which it would open by itself
        store.findings.set_state(number, FindingState.ACKNOWLEDGED, reason="known", by="ann")
    store.exclusions.exclude(run, [other], reason="the GPU was shared", by="ann")
    why = CaseExplanation(make.SHARED, "GPU-1", make.GPU.model, 1, run, "fewer warps", (make.WHY,), 2.0)
    store.profiles.put_explanation(why)
    store.nights.put_stage(night, StageRow("run", 4, StageState.FAILED, started, 0.5, "no GPU left", "mend it", 5))
    store.nights.put_stage(night, StageRow("judge", 5, StageState.DONE, started, 0.5, "3 series", "", 0))
    store.nights.end(night, RunState.FINISHED, 4)


def payload_of(group: str, text: str) -> str:
    """Return the payload of a group that belongs to a text; each gets about as many texts as the others."""
    names = GROUPS[group]
    return PAYLOADS[names[zlib.crc32(text.encode(errors="replace")) % len(names)]]


def make_series(make, case: Case) -> Series:
    return Series(case, make.GPU.uuid, make.GPU.model)


def replace_texts(path: Path, change: Callable[[str], str]) -> list[str]:
    """Replace each text in a database that a stranger may have written, and return the names of the changed columns.

    Equal texts become equal texts, so that what belongs together still does.
    """
    changed = []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.create_function("change", 1, change)
        connection.execute("PRAGMA foreign_keys = OFF")
        for table, names in UNSET.items():
            for name in names:
                connection.execute(f"UPDATE {table} SET {name} = '{name}'")
        for table in metadata().sorted_tables:
            for column in table.columns:
                if column.name in OURS.get(table.name, ()) or not isinstance(column.type, FreeText):
                    continue
                name = column.name
                where = f"{name} <> ''" + (f" AND {name} NOT IN {OUR_METRICS}" if name in {"metric", "name"} else "")
                rows = connection.execute(f"UPDATE {table.name} SET {name} = change({name}) WHERE {where}").rowcount
                changed += [f"{table.name}.{name}"] * (rows > 0)
        connection.create_function("named", 3, lambda benchmark, variant, point: as_case(benchmark, variant, point).id)
        point = change_point(change)
        connection.execute("UPDATE cases SET point = ?", (point,))
        connection.execute("UPDATE cases SET name = named(benchmark, variant, point)")
        for column in ("runs.packages", "nights.settings"):
            table, name = column.split(".")
            connection.execute(f"UPDATE {table} SET {name} = ?", (json.dumps({change("key"): change("value")}),))
        for number, reasons in connection.execute("SELECT id, reasons FROM explanations").fetchall():
            hostile = json.dumps(change_strings(json.loads(reasons), change))
            connection.execute("UPDATE explanations SET reasons = ? WHERE id = ?", (hostile, number))
        for number, answer in connection.execute("SELECT id, answer FROM bisections").fetchall():
            hostile = json.dumps(change_strings(json.loads(answer), change))
            connection.execute("UPDATE bisections SET answer = ? WHERE id = ?", (hostile, number))
        compressed = "SELECT id, instructions FROM profiles WHERE instructions IS NOT NULL"
        for number, instructions in connection.execute(compressed).fetchall():
            hostile = json.dumps(change_strings(json.loads(zlib.decompress(instructions)), change))
            blob = zlib.compress(hostile.encode())
            connection.execute("UPDATE profiles SET instructions = ? WHERE id = ?", (blob, number))
        replace_parts(connection, change)
        changed += ["cases.name", "cases.point", "runs.packages", "nights.settings"]
        changed += ["environments.parts", "full_environments.parts"]
        changed += ["explanations.reasons", "bisections.answer", "profiles.instructions"]
    return changed


def stored(text: str) -> str:
    """Return a text as the database stores it."""
    return FreeText().process_bind_param(text, None)


WORDS = {"kind", "follows", "cache", "metric", "verdict", "status", "date"}
"""Keys of JSON whose value is a word of perfsvc."""


def change_strings(value, change):
    """Return a JSON value with each text changed that a stranger may have written."""
    if isinstance(value, dict):
        return {key: item if key in WORDS else change_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [change_strings(item, change) for item in value]
    return change(value) if isinstance(value, str) and value else value


def replace_parts(connection: sqlite3.Connection, change) -> None:
    """Replace the names and values of the parts of all environments."""
    for table in ("environments", "full_environments"):
        for number, parts in connection.execute(f"SELECT id, parts FROM {table}").fetchall():
            hostile = json.dumps(change_parts(json.loads(parts), change))
            connection.execute(f"UPDATE {table} SET parts = ? WHERE id = ?", (hostile, number))


def change_parts(value, change):
    """Return the parts of an environment with each name and each value changed."""
    if isinstance(value, dict):
        return {
            key if key in {"common", "devices"} else change(key): change_parts(item, change)
            for key, item in value.items()
        }
    return change(value)


def change_point(change) -> str:
    return json.dumps({"n": 64, change("dtype"): change("f32")}, separators=(",", ":"), ensure_ascii=False)


def as_case(benchmark: str, variant: str, point: str) -> Case:
    return Case(benchmark, variant, tuple(json.loads(point).items()))
