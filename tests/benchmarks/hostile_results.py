"""Import damaged result files of other tools: none may cause a traceback, and none may be imported in part.

    python tests/benchmarks/hostile_results.py [--files 10000] [--seed 7]

Each file is a real one of tests/data/formats with changed, cut or added bytes, or with other values at random places;
for NVBench, files of samples lie beside it. The claims: an import ends with an error of perfsvc or stores runs; after
an error the database is as it was; after a success every run is finished, and a second import stores nothing.
"""

import contextlib
import json
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hostile import changed_bytes, cut, other_values
from sqlalchemy import delete
from workbench import Claim, Silent, finish, parsed, table

from perfsvc.errors import PerfsvcError
from perfsvc.model import RunState
from perfsvc.report.export.objects import plain, run_json
from perfsvc.service.imports import imports
from perfsvc.service.imports.imports import ImportRequest, import_files
from perfsvc.service.results import stored_report
from perfsvc.store import Store
from perfsvc.store.schema.all_tables import metadata
from perfsvc.text import json_text

DATA = Path(__file__).parents[1] / "data" / "formats"
FILES = {
    "nvbench": ("nvbench.json",),
    "google-benchmark": ("google-benchmark.json", "google-benchmark-aggregates.json"),
    "pytest-benchmark": ("pytest-benchmark.json", "pytest-benchmark-saved.json"),
    "asv": ("asv/vm/7032ec01-existing-py3.11.json", "asv/benchmarks.json", "asv/vm/machine.json"),
    "hyperfine": ("hyperfine.json",),
    "nccl-tests": ("nccl-tests.txt",),
    "csv": ("csv.csv",),
}
"""The files of each format; of asv, all three lie in one folder, and one of them is damaged."""
WORDS = ("nan", "inf", "-1", "", "0", "1e999", "9" * 400, "N/A", "\x1b[31m", "'", '"', "\0", "time", "size", "é" * 300)
"""What replaces a word of a text."""
IMPORTS_OF_A_DATABASE = 40
"""After so many imports the database is emptied: long histories take time to judge."""
SHOWN = 10
"""One of so many imported runs is shown as well."""


# --- damage ----------------------------------------------------------------------------------------------------------


def damaged(chance: random.Random, content: bytes, name: str) -> bytes:
    """Return the content of a file with some damage."""
    ways: list[Callable[[random.Random, bytes], bytes]] = [changed_bytes, cut]
    ways += [other_values] * 4 if name.endswith(".json") else [_other_words] * 4
    for _ in range(chance.choice((1, 1, 1, 2))):
        content = chance.choice(ways)(chance, content)
    return content


def _other_words(chance: random.Random, content: bytes) -> bytes:
    """Replace, remove or double words and lines of a text."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(lines))
        separator = "," if "," in lines[at] else " "
        words = lines[at].split(separator)
        match chance.randrange(4):
            case 0:
                lines.insert(at, lines[at])
            case 1:
                del words[chance.randrange(len(words))]
            case _:
                words[chance.randrange(len(words))] = chance.choice(WORDS)
        lines[at] = separator.join(words)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def write(chance: random.Random, format: str, folder: Path) -> Path:  # noqa: A002 - the word of the command
    """Write a damaged file of a format into an empty folder, and return the path to import."""
    names = FILES[format]
    chosen = chance.choice(names)
    for name in names if format == "asv" else (chosen,):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = (DATA / name).read_bytes()
        if format == "nvbench":
            content = with_samples(json.loads(content), path, chance)
        path.write_bytes(damaged(chance, content, name) if name == chosen else content)
    return folder / ("asv" if format == "asv" else chosen)


def with_samples(document: dict[str, Any], path: Path, chance: random.Random | None = None) -> bytes:
    """Return NVBench's JSON with summaries that name files of samples, and write these files, some of them damaged."""
    import numpy as np

    number = 0
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"]:
            values = {summary["tag"]: summary for summary in state["summaries"]}
            for suffix, tag, center in (
                ("-bin", "nv/json/bin:nv/cold/sample_times", "nv/cold/time/gpu/median"),
                ("-freqs-bin", "nv/json/freqs-bin:nv/cold/sample_freqs", "nv/cold/sm_clock_rate/mean"),
            ):
                middle = float(values[center]["data"][0]["value"])
                samples = np.linspace(0.99 * middle, 1.01 * middle, 21).astype("<f4")
                folder = path.parent / f"{path.name}{suffix}"
                folder.mkdir(exist_ok=True)
                content = samples.tobytes()
                if chance is not None and chance.random() < 0.05:
                    content = changed_bytes(chance, content)
                (folder / f"{number}.bin").write_bytes(content)
                data = [
                    {"name": "filename", "type": "string", "value": f"{path.name}{suffix}/{number}.bin"},
                    {"name": "size", "type": "int64", "value": str(samples.size)},
                ]
                state["summaries"].append({"tag": tag, "name": "Samples", "hint": "file/sample_times", "data": data})
            number += 1
    return json.dumps(document).encode()


# --- imports ---------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What became of the files.

    Attributes:
        by_format: how many files of each format were imported (True) or refused.
        problems: what must not happen, with how often it did.
        messages: how often each kind of error was seen, for people.
    """

    by_format: Counter[tuple[str, bool]] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)


def attack(files: int, seed: int, folder: Path) -> Result:
    """Import so many damaged files."""
    result = Result()
    chance = random.Random(seed)
    place, database = folder / "files", folder / "perfsvc.db"
    # One store for all imports: another one would compile all SQL again, which takes longer than an import.
    with Store.open(database) as store, mock.patch.object(imports.Store, "open", return_value=nullcontext(store)):
        for number in range(files):
            if number % IMPORTS_OF_A_DATABASE == 0:
                with store.database.writing() as connection:
                    for table in reversed(metadata().sorted_tables):
                        connection.execute(delete(table))
            place.mkdir()
            name = list(FILES)[number % len(FILES)]
            path = write(chance, name, place)
            request = ImportRequest(str(database), name, (path,))
            _import(request, store, result, f"{name} of seed {seed}, file {number}", show=chance.random() < 1 / SHOWN)
            shutil.rmtree(place)
    return result


def _import(request: ImportRequest, store: Store, result: Result, what: str, *, show: bool) -> None:
    """Import a damaged file, and note what must not happen."""
    before = rows(request.database)
    try:
        outcome = import_files(request, Silent())
        result.by_format[request.format, True] += 1
        for run in outcome.runs:
            result.problems[f"an unfinished run: {what}"] += run.state is not RunState.FINISHED
            if show:
                json_text({"run": plain(run), **run_json(stored_report(store, run.id))})
        after = rows(request.database)
        again = import_files(request, Silent())
        result.problems[f"imported twice: {what}"] += bool(again.runs) or rows(request.database) != after
    except PerfsvcError as error:
        result.by_format[request.format, False] += 1
        result.problems[f"a partial import: {what}"] += rows(request.database) != before
        result.problems[f"an error without a cure: {error.what[:200]}"] += not error.cure
        result.problems[f"not a usage error: {what}: {error.what[:200]}"] += error.exit_code != 2
    except Exception as error:  # noqa: BLE001 - it is what the script looks for
        result.problems[f"{what}: {type(error).__name__}: {str(error)[:200]}"] += 1


def rows(database: str) -> dict[str, int]:
    """Return how many rows each table has, and how many runs the database has ever had."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}  # noqa: S608


def main() -> int:
    options = parsed(__doc__, ("--files", 10_000), ("--seed", 7))
    with tempfile.TemporaryDirectory() as folder:
        attack(len(FILES), options.seed + 1, Path(folder))  # takes what is taken once
        memory_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = attack(options.files, options.seed, Path(folder))
        more_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kib) / 1024
    cells = [(name, f"{result.by_format[name, True]}", f"{result.by_format[name, False]}") for name in FILES]
    print(table(("format", "imported", "refused"), cells))
    claims = [
        Claim("files that were neither imported nor refused", options.files - sum(result.by_format.values()), 0),
        Claim("what must not happen", sum(result.problems.values()), 0),
        Claim("memory taken", more_mib, 300, " MiB"),
    ]
    problems = [f"{what}: {count}" for what, count in (+result.problems).items()]
    return finish(claims, options.json, problems=problems)


if __name__ == "__main__":
    sys.exit(main())
