"""The code of templates is made once for all processes of a user."""

from pathlib import Path
from unittest import mock

import pytest
from jinja2 import DictLoader, Environment
from jinja2.bccache import bc_magic

from perfsvc.report.pages.render import TemplateCode


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PERFSVC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiled(text: str = "{{ 1 + x }}", *, autoescape: bool = True, **options: bool) -> bool:
    """Render a template in a new environment, and return whether Jinja compiled it."""
    environment = Environment(
        loader=DictLoader({"page": text}),
        bytecode_cache=TemplateCode(),
        autoescape=autoescape,  # noqa: S701 - a test renders its own number
        **options,
    )
    with mock.patch.object(environment, "compile", wraps=environment.compile) as compiling:
        assert environment.get_template("page").render(x=1) == text.replace("{{ 1 + x }}", "2")
    return compiling.called


def test_a_template_is_compiled_once_and_again_with_another_text_other_options_or_a_damaged_entry(folder: Path) -> None:
    assert [compiled(), compiled()] == [True, False]
    (entry,) = (path for path in folder.rglob("*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-1])
    assert [compiled(), compiled()] == [True, False]
    assert compiled("{{ 1 + x }}!")
    assert compiled(trim_blocks=True)
    assert compiled(lstrip_blocks=True)
    assert compiled(autoescape=False)


def test_an_entry_of_another_program_or_another_jinja_is_compiled_again(folder: Path) -> None:
    compiled()
    with mock.patch("jinja2.__version__", "0"):
        assert compiled()
    with mock.patch("jinja2.bccache.Bucket.bytecode_to_string", return_value=bc_magic):
        assert compiled("{{ 1 + x }}?")
    assert compiled("{{ 1 + x }}?")
    assert not compiled("{{ 1 + x }}?")


def test_without_a_folder_that_is_private_templates_are_compiled(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert compiled()
    assert compiled()
    assert not list(folder.iterdir())
