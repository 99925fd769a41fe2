"""perfsvc: a performance-regression service for CUDA kernels.

Importing this package is free: every room is imported where it is used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfsvc.api import StoredResults

__version__ = "0.1.0"


def open(  # noqa: A001 - perfsvc.open reads as what it does
    database: str | Path | None = None, *, suite: str | Path | None = None, config: str | Path | None = None
) -> "StoredResults":
    """Open a database of results for reading, as pandas frames.

    ``with perfsvc.open("perfsvc.db") as results: results.measurements()`` reads all measurements. Opening never
    creates, upgrades or changes a database.

    Args:
        database: the path of a SQLite file, or an SQLAlchemy URL; None for the database of the settings, as commands
            choose it: ``PERFSVC_DB``, else perfsvc.toml, else ``perfsvc.db``.
        suite: the folder in whose repository git revisions are looked up; None for the suite of the settings.
        config: the perfsvc.toml; None for the file that commands find: in this folder or the nearest folder above.

    Raises:
        DatabaseError: the database does not exist or cannot be read, or has the schema of another perfsvc.
        ConfigError: perfsvc.toml, or a variable for one of its keys, is not valid.
        MissingPackageError: the driver for this kind of database is not installed.
    """
    from perfsvc.api import open_results

    return open_results(database, suite=suite, config=config)
