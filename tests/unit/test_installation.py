"""The commands in cures name what pip can install from where perfsvc itself came."""

import json
import pkgutil
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest

import perfsvc
from perfsvc import installation
from perfsvc.installation import install_command, reinstall_command, upgrade_command

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIP = f"{sys.executable} -m pip install"


@pytest.fixture
def installed(monkeypatch):
    """Return a function that makes perfsvc look installed from a URL (None: from an index), without its extras."""

    class Distribution:
        def __init__(self, url):
            self._url = url

        def read_text(self, _):
            return None if self._url is None else json.dumps({"url": self._url, "dir_info": {}})

    def install(url, package=None):
        monkeypatch.setattr(metadata, "requires", lambda _: [])
        monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(url))
        monkeypatch.setattr(installation, "_PACKAGE", package or ROOT / "perfsvc")

    return install


def test_the_install_command_names_every_package_of_an_extra_and_this_python():
    for extra in ("cpu", "cuda", "export", "nightly", "nvcc", "plot", "postgresql", "profile"):
        command = install_command(extra)
        assert command.startswith(f"{PIP} ")
        for requirement in PROJECT["optional-dependencies"][extra]:
            assert requirement.split(">")[0] in command


def test_an_editable_checkout_is_named_as_such(installed):
    installed(ROOT.as_uri())
    assert install_command("plot") == f"{PIP} -e '{ROOT}[plot]'"
    assert reinstall_command() == f"{PIP} --force-reinstall -e {ROOT}"
    assert upgrade_command() == f"git -C {ROOT} pull && {PIP} --upgrade -e {ROOT}"


def test_an_installed_checkout_is_named_by_its_folder_unless_it_is_gone(installed, tmp_path):
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    installed(checkout.as_uri(), package=tmp_path / "site-packages" / "perfsvc")
    assert install_command("plot") == f"{PIP} '{checkout}[plot]'"
    checkout.rmdir()
    assert install_command("plot") == f"{PIP} 'perfsvc[plot]'"


def test_a_package_from_an_index_is_named_by_its_name(installed, tmp_path):
    installed(None, package=tmp_path / "perfsvc")
    assert install_command("plot") == f"{PIP} 'perfsvc[plot]'"
    assert reinstall_command() == f"{PIP} --force-reinstall perfsvc"
    assert upgrade_command() == f"{PIP} --upgrade perfsvc"


def test_a_checkout_on_the_path_without_an_installation_is_named(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(installation, "_PACKAGE", ROOT / "perfsvc")  # the tests may run an installed copy
    assert install_command("plot") == f"{PIP} -e '{ROOT}[plot]'"


def test_every_module_can_be_imported_without_the_extras():
    for module in pkgutil.walk_packages(perfsvc.__path__, "perfsvc."):
        # Importing the one runs the command line; the others need PyCUDA and a driver, and tests/gpu imports them.
        if module.name != "perfsvc.__main__" and not module.name.startswith("perfsvc.device.cuda."):
            import_module(module.name)
