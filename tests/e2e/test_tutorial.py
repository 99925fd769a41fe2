"""Every file and command of docs/tutorial.md, in order, with the exit codes and the output that the page shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
ELSEWHERE = "..."
"""A line of the page that stands for lines which differ from machine to machine."""


def files() -> list[tuple[str, str]]:
    """The files that the reader writes: path and content."""
    return re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)


def sessions() -> list[str]:
    """The console blocks of the page: commands behind ``$``, each followed by its output."""
    return re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, int, list[str]]]:
    """Each command of the page with its exit code and the lines of output that the page shows."""
    steps = []
    for session in sessions():
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            line, *output = part.splitlines()
            command, _, code = line.partition("  # exit code ")
            steps.append((command, int(code or 0), [text for text in output if text != ELSEWHERE]))
    return steps


def like(line: str) -> re.Pattern[str]:
    """A pattern for a line of output: numbers, units and the width of columns may differ."""
    words = [re.escape(word) for word in re.sub(r"\d[\d.,]*", "0", line).split()]
    text = r"\s+".join(re.sub(r"0", r"[\\d.,]+", word) for word in words)
    return re.compile(r"\s*" + re.sub(r"\b(ns|µs|ms)\b", "[nµm]?s", text))


@pytest.fixture
def folder(tmp_path):
    """The reader's folder with the files of the page."""
    for name, content in files():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("xz") is None, reason="the tutorial unpacks reports with xz, which is not installed")
def test_every_command_of_the_tutorial_does_what_the_page_shows(folder):
    pytest.importorskip("ncu_report", reason="the tutorial explains reports with ncu-report")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PERFSVC_CLONE": str(ROOT),
        "COLUMNS": "120",
        "HOME": str(folder),
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "Ann",
        "GIT_CONFIG_KEY_1": "user.email",
        "GIT_CONFIG_VALUE_1": "ann@example.com",
    }
    for command, code, shown in commands():
        ended = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, f"{command}\n{ended.stdout}{ended.stderr}"
        printed = ended.stdout.splitlines()
        for line in shown:
            assert any(like(line).match(text) for text in printed), (
                f"{command} does not print {line!r}:\n{ended.stdout}"
            )


def test_the_page_shows_commands_and_files():
    assert [name for name, _ in files()] == ["kernels/saxpy/saxpy.cu", "kernels/saxpy/bench.py"]
    assert [command.split()[1] for command, _, _ in commands() if command.startswith("perfsvc")] == [
        "run",
        "run",
        "findings",
        "bisect",
        "explain",
        "run",
        "findings",
    ]
