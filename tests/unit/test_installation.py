"""What a cure tells people to install is what the project declares."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from perfsvc.installation import install_command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
ASKED_FOR = ("cpu", "cuda", "export", "nightly", "nvcc", "plot", "postgresql", "profile")


@pytest.mark.parametrize("extra", ASKED_FOR)
def test_it_names_every_package_of_an_extra_for_this_python(extra):
    told = install_command(extra)
    assert told.startswith(f"{sys.executable} -m pip install ")
    for requirement in PROJECT["optional-dependencies"][extra]:
        assert requirement.split(">")[0] in told


def test_without_metadata_it_names_the_extra(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    assert install_command("plot") == f"{sys.executable} -m pip install 'perfsvc[plot]'"
