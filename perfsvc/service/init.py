"""The first ``perfsvc.toml``: every key that there is, commented with its default, and the suite that is here."""

import os
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from perfsvc.config.file import NAME
from perfsvc.config.keys import KEYS, RULE, TABLES, Key
from perfsvc.config.toml import toml
from perfsvc.config.variables import name_of
from perfsvc.errors import ConfigError

WIDTH = 100
SUITES = ("kernels", "benchmarks", "suite")
"""Folders that a suite may lie in, the usual one first."""

_HEAD = f"""\
# {NAME}: what `perfsvc nightly` does, and what other commands do unless an option says otherwise.
#
# Every key is here. One that is commented out has the default that it shows, or an example where it has none.
# A command's option goes before a variable ({name_of("run.replicas")}=5), that before this file, and this file before
# the default. Paths count from the folder of this file. Durations: 90s, 20m, 1h30m, 90d; shares: 2% or 0.02.
# What is in force, and where it comes from: perfsvc config show
"""
_SECRETS = "# Secrets never stand here: a database with a password is named in PERFSVC_DB, a target by its variable."


def suite_in(folder: Path) -> Path | None:
    """The suite that lies in a folder, relative to it: one with benchmark files below it; None where there is none."""
    for name in SUITES:
        if (folder / name).is_dir() and any((folder / name).glob("**/bench.py")):
            return Path(name)
    here = sorted({path.relative_to(folder).parts[0] for path in folder.glob("*/*/bench.py")})
    if here:
        return Path(here[0])
    return Path() if any(folder.glob("*/bench.py")) else None


def text(suite: Path | None) -> str:
    """The file's text.

    Args:
        suite: the suite that it names, relative to the file; None leaves the default in force.
    """
    tables: dict[str, list[Key]] = {}
    for key in KEYS.values():
        tables.setdefault(key.table, []).append(key)
    parts = [_HEAD + _SECRETS, *_keys(tables.pop(""), suite)]
    for table, keys in tables.items():
        parts += ["", *_comment(TABLES[table]), f"[{table}]", *_keys(keys, None)]
    return "\n".join([*parts, "", *_rules()]) + "\n"


def write(path: Path, suite: Path | None, *, force: bool) -> None:
    """Writes the file, whole or not at all.

    Raises:
        ConfigError: it is there already, and ``force`` does not say to write over it; or it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text(suite), encoding="utf-8")
        if force:
            beside.replace(path)
        else:
            path.hardlink_to(beside)  # which writes over nothing, unlike a renaming
    except FileExistsError:
        cure = "edit it, or write over it: perfsvc init --force"
        raise ConfigError("it is there already, and is left as it is", path=str(path), cure=cure) from None
    except OSError as error:
        cure = "see that the folder is there and that you may write to it"
        raise ConfigError(f"cannot be written: {error.strerror}", path=str(path), cure=cure) from None
    finally:
        beside.unlink(missing_ok=True)


def _keys(keys: list[Key], suite: Path | None) -> Iterator[str]:
    for key in keys:
        if key.dotted == "thresholds":
            continue
        yield from ("", *_comment(key.meaning))
        named = key.dotted == "suite" and suite is not None
        yield f"{'' if named else '# '}{key.name} = {toml(suite) if named else key.written(key.default)}"


def _rules() -> Iterator[str]:
    """An example of a rule, which has no default."""
    yield from _comment(KEYS["thresholds"].meaning)
    yield "# [[thresholds]]"
    for key in RULE.values():
        yield f"# {key.name} = {key.written(key.default)}  # {key.meaning}"


def _comment(sentence: str) -> list[str]:
    return [f"# {line}" for line in wrap(sentence, WIDTH - 2)]
