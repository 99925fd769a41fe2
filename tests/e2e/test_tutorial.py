"""Every file and command of two pages, in order, with the exit codes and the output that they show.

The pages are docs/tutorial.md and docs/how-to/send-messages.md, whose commands continue in the folder of the tutorial.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
MESSAGES = (ROOT / "docs" / "how-to" / "send-messages.md").read_text(encoding="utf-8")
PORT = "8765"
"""The port of the web server that docs/how-to/send-messages.md starts."""
ELSEWHERE = "..."
"""A line of the page that stands for lines which differ from machine to machine."""


def files(page: str = PAGE) -> list[tuple[str, str]]:
    """The files that the reader writes: path and content."""
    return re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)


def sessions(page: str = PAGE) -> list[str]:
    """The console blocks of the page: commands behind ``$``, each followed by its output."""
    return re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands(page: str = PAGE) -> list[tuple[str, int, list[str]]]:
    """Each command of the page with its exit code and the lines of output that the page shows."""
    steps = []
    for session in sessions(page):
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            line, *output = part.splitlines()
            command, _, code = line.partition("  # exit code ")
            steps.append((command, int(code or 0), [text for text in output if text != ELSEWHERE]))
    return steps


def like(line: str) -> re.Pattern[str]:
    """A pattern for a line of output: numbers, commits, units and the width of columns may differ."""
    without_commits = re.sub(r"\b[0-9a-f]{9}\b", "COMMIT", line)
    words = [re.escape(word) for word in re.sub(r"\d[\d.,]*", "0", without_commits).split()]
    text = r"\s+".join(re.sub(r"0", r"[\\d.,]+", word) for word in words)
    text = text.replace("COMMIT", "[0-9a-f]{9}")
    text = re.sub(r"\b(ns|µs|ms)\b", "[nµm]?s", text)
    return re.compile(r"\s*" + re.sub(r"\b[kMGT]?B/s", "[kMGT]?B/s", text))


def write(folder: Path, page: str) -> None:
    """Write the files of a page as the reader does."""
    for name, content in files(page):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def do(folder: Path, page: str) -> None:
    """Type the commands of a page in a folder, and compare what they do with what the page shows."""
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
    typed = commands(page)
    assert len(typed) > 6
    for command, code, shown in typed:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == code, f"{command}\n{ended.stdout}{ended.stderr}"
        printed = ended.stdout.splitlines()
        for line in shown:
            assert any(like(line).match(text) for text in printed), (
                f"{command} does not print {line!r}:\n{ended.stdout}"
            )


@pytest.mark.skipif(shutil.which("xz") is None, reason="the tutorial unpacks reports with xz, which is not installed")
def test_every_command_of_the_tutorial_does_what_the_page_shows(tmp_path):
    pytest.importorskip("ncu_report", reason="the tutorial explains reports with ncu-report")
    write(tmp_path, PAGE)
    do(tmp_path, PAGE)


def test_every_command_of_the_page_about_messages_does_what_the_page_shows(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        page = MESSAGES.replace(PORT, str(free.getsockname()[1]))
    write(tmp_path, PAGE)
    write(tmp_path, page)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    do(tmp_path, page)
