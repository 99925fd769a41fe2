"""Write the workflows of GitHub, or the jobs of GitLab, that compare the kernels of each pull request."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from perfsvc.errors import ConfigError, InfrastructureError, UsageError
from perfsvc.files import write

GITHUB: Mapping[str, str] = {
    ".github/workflows/perfsvc.yml": "perfsvc.yml",
    ".github/workflows/perfsvc-forks.yml": "perfsvc-forks.yml",
}
"""The templates of GitHub's workflows, by the names of the files."""
GITLAB: Mapping[str, str] = {"perfsvc.gitlab-ci.yml": "perfsvc.gitlab-ci.yml"}
"""The template of GitLab's jobs, by the name of the file."""

_ACTION = re.compile(r"[\w.-]+/[\w.-]+@[\w.][\w./-]*", re.ASCII)
_SOURCE = re.compile(r"(?:git\+)?(?:https|ssh)://[^\s'\"$\\]+", re.ASCII)


def write_github(folder: Path, action: str, suite: Path, *, force: bool) -> list[Path]:
    """Write the workflows of GitHub and return their paths.

    Args:
        folder: the top folder of the repository.
        action: the repository of perfsvc on GitHub and its version: ``owner/perfsvc@v0.1.0``.
        suite: the folder of benchmarks, relative to the repository.
        force: overwrite existing files.

    Raises:
        UsageError: the action or the suite is not valid.
        ConfigError: a file exists already.
        InfrastructureError: a file cannot be written.
    """
    if not _ACTION.fullmatch(action):
        raise UsageError(
            f"{action!r} is no action of GitHub",
            cure="name the repository of perfsvc and a tag or a commit: --github OWNER/perfsvc@v0.1.0",
        )
    return _write(folder, GITHUB, {"ACTION": action, "SUITE": _suite(suite)}, force=force)


def write_gitlab(folder: Path, source: str, suite: Path, *, force: bool) -> list[Path]:
    """Write the jobs of GitLab and return their paths.

    Args:
        folder: the top folder of the repository.
        source: the URL from which pip installs perfsvc: ``git+https://gitlab.example.com/tools/perfsvc@v0.1.0``.
        suite: the folder of benchmarks, relative to the repository.
        force: overwrite existing files.

    Raises:
        UsageError: the URL or the suite is not valid.
        ConfigError: the file exists already.
        InfrastructureError: the file cannot be written.
    """
    if not _SOURCE.fullmatch(source):
        raise UsageError(
            f"{source!r} is no URL of perfsvc",
            cure="name what pip installs: --gitlab git+https://gitlab.example.com/tools/perfsvc@v0.1.0",
        )
    return _write(folder, GITLAB, {"SOURCE": json.dumps(source), "SUITE": _suite(suite)}, force=force)


def _suite(suite: Path) -> str:
    """Return the suite's path for YAML; raise ``UsageError`` for a path outside the repository, or with an expression.

    GitHub would replace ``${{ … }}``, and GitLab ``$NAME``.
    """
    if suite.is_absolute() or ".." in suite.parts or "$" in str(suite):
        raise UsageError(
            f"the suite {suite} is not in this folder", cure="go to the top folder of the repository, and use --suite"
        )
    return json.dumps(suite.as_posix())


def _write(folder: Path, files: Mapping[str, str], values: Mapping[str, str], *, force: bool) -> list[Path]:
    """Write files from templates, all or none if a file exists."""
    paths = [folder / name for name in files]
    for path in paths:
        if path.exists() and not force:
            cure = "edit it, or write over it: --force"
            raise ConfigError("it exists already, and was not changed", path=str(path), cure=cure)
    for path, template in zip(paths, files.values(), strict=True):
        text = (Path(__file__).parent / "templates" / template).read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, text)
        except OSError as error:
            what = f"{path} cannot be written: {error.strerror}"
            raise InfrastructureError(what, cure="check that you may write to its folder") from error
    return paths
