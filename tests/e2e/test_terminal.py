"""Colour and a progress bar where a person watches, plain text everywhere else."""

import os
import pty
import subprocess
import sys

import pytest

ESCAPE = "\x1b"


@pytest.fixture
def coloured(perfsvc):
    """A workplace whose environment says nothing against colour."""
    del perfsvc.environment["NO_COLOR"], perfsvc.environment["COLUMNS"]
    perfsvc.environment["TERM"] = "xterm-256color"
    perfsvc.play({"*": {"seconds": 1e-4}, "scale/beta": {"fault": "wrong"}})
    return perfsvc


def watched(workplace, *arguments):
    """What a command shows a person, and its exit code."""
    screen, terminal = pty.openpty()
    command = [sys.executable, "-m", "perfsvc", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=workplace.folder, env=workplace.environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while chunk := os.read(screen, 65536):
                shown += chunk
        except OSError:  # Linux reports a closed terminal like this
            pass
        finally:
            os.close(screen)
    return process.returncode, shown.decode()


def arguments(workplace):
    return ("run", "--device", f"fake:{workplace.script}", "--suite", workplace.suites / "scale", "--replicas", "1")


def test_nothing_but_text_is_written_to_files_and_pipes(coloured):
    ended = coloured.process(*arguments(coloured), code=4)
    assert ESCAPE not in ended.out + ended.err
    assert "\r" not in ended.out + ended.err
    assert ended.err == ""
    assert "scale/beta[n=100]" in ended.out


def test_a_terminal_gets_colour_and_a_progress_bar(coloured):
    code, shown = watched(coloured, *arguments(coloured))
    assert code == 4
    assert "compiling" in shown
    assert "measuring" in shown
    assert "5/5" in shown  # three cases and the measured peak's two
    assert f"{ESCAPE}[1;31m" in shown  # what is wrong is bold red
    assert "scale/beta[n=100]" in shown


def test_colour_can_be_turned_off(coloured):
    coloured.environment["NO_COLOR"] = "1"
    _, shown = watched(coloured, "compare", "7", "8")
    assert "error: " in shown
    assert ESCAPE not in shown
