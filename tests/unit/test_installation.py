"""The install command in a cure names the packages that the project declares."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from perfsvc.installation import install_command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
ASKED_FOR = ("cpu", "cuda", "export", "nightly", "nvcc", "plot", "postgresql", "profile")


@pytest.mark.parametrize("extra", ASKED_FOR)
def test_the_install_command_names_every_package_of_an_extra_and_this_python(extra):
    command = install_command(extra)
    assert command.startswith(f"{sys.executable} -m pip install ")
    for requirement in PROJECT["optional-dependencies"][extra]:
        assert requirement.split(">")[0] in command


def test_the_install_command_names_the_extra_without_metadata(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_command("plot") == f"{sys.executable} -m pip install 'perfsvc[plot]'"
