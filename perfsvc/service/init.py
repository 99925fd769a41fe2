"""Write the first ``perfsvc.toml``: every key, commented out with its default, and the suite that is here."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from perfsvc.config.file import NAME
from perfsvc.config.keys import ARRAYS, KEYS, TABLES, SettingKey, toml
from perfsvc.config.load import variable_of
from perfsvc.errors import ConfigError
from perfsvc.files import write as write_file

WIDTH = 100
SUITES = ("kernels", "benchmarks", "suite")
"""Folders that may hold a suite, the usual one first."""

_HEAD = f"""\
# {NAME}: what `perfsvc nightly` does, and what other commands do unless an option says otherwise.
#
# Every key is here. A key that is commented out shows its default, or an example if it has no default.
# An option of a command takes precedence over a variable ({variable_of("run.replicas")}=5), a variable over this file,
# and this file over the default. Paths count from the folder of this file. Durations: 90s, 20m, 1h30m, 90d; shares: 2%
# or 0.02. To see what is in force, and where each value comes from: perfsvc config show
#
# Write no secrets here: set PERFSVC_DB for a database with a password, and name the variable of a target.
"""


def suite_in(folder: Path) -> Path | None:
    """Return the suite's folder relative to ``folder``; None if there is no benchmark file.

    A subfolder with a usual name comes first, then any other subfolder, then ``folder`` itself.
    """
    for name in SUITES:
        if (folder / name).is_dir() and any((folder / name).glob("**/bench.py")):
            return Path(name)
    subfolders = sorted({path.relative_to(folder).parts[0] for path in folder.glob("*/*/bench.py")})
    if subfolders:
        return Path(subfolders[0])
    return Path() if any(folder.glob("*/bench.py")) else None


def text(suite: Path | None) -> str:
    """Return the text of the starting ``perfsvc.toml``.

    Args:
        suite: the suite to name, relative to the file; None leaves the default in force.
    """
    tables: dict[str, list[SettingKey]] = {}
    for key in KEYS.values():
        tables.setdefault(key.table, []).append(key)
    parts = [_HEAD.rstrip("\n"), *_keys(tables.pop(""), suite)]
    for table, keys in tables.items():
        parts += ["", *_comment(TABLES[table]), f"[{table}]", *_keys(keys, None)]
    return "\n".join([*parts, *_arrays()]) + "\n"


def write(path: Path, suite: Path | None, *, force: bool) -> None:
    """Write the starting ``perfsvc.toml`` atomically.

    Raises:
        ConfigError: the file exists and ``force`` is not set, or it cannot be written.
    """
    try:
        write_file(path, text(suite), replace=force)
    except FileExistsError:
        cure = "edit it, or write over it: perfsvc init --force"
        raise ConfigError("it exists already, and was not changed", path=str(path), cure=cure) from None
    except OSError as error:
        cure = "check that the folder exists and that you may write to it"
        raise ConfigError(f"cannot be written: {error.strerror}", path=str(path), cure=cure) from None


def _keys(keys: list[SettingKey], suite: Path | None) -> Iterator[str]:
    """Yield the lines of keys: each is commented out with its default, except ``suite`` if a suite is given."""
    for key in keys:
        if key.dotted in ARRAYS:
            continue
        yield from ("", *_comment(key.meaning))
        if key.dotted == "suite" and suite is not None:
            yield f"{key.name} = {toml(suite)}"
        else:
            yield f"# {key.name} = {key.written(key.default)}"


def _arrays() -> Iterator[str]:
    """Yield an example of each array of tables, commented out; such an array has no default."""
    for dotted, keys in ARRAYS.items():
        yield from ("", *_comment(KEYS[dotted].meaning))
        yield f"# [[{dotted}]]"
        for key in keys.values():
            yield f"# {key.name} = {key.written(key.default)}  # {key.meaning}"


def _comment(sentence: str) -> list[str]:
    return [f"# {line}" for line in wrap(sentence, WIDTH - 2)]
