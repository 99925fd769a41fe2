"""Every way in which a command can end has its own exit code and last words."""

import errno
import io
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from perfsvc.cli import LazyGroup, ending
from perfsvc.errors import NOTHING_MEASURED, NoDeviceError, UsageError

FULL = Path("/dev/full")
COMMAND = """
import os, signal, sys
import click
from perfsvc import cli

@click.command()
def command():
    {body}

cli.LazyGroup.get_command = lambda self, context, name: command
sys.argv = ["perfsvc", "run"]
cli.main()
"""


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.fixture(autouse=True)
def no_signal_is_ignored():
    """A child takes over what its parent ignores, and ``nohup`` ignores a signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def ended(body, before="", **options):
    """Run a command with this body after a statement, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", f"{before}\n{COMMAND.format(body=body)}"],
        env=BUFFERED,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
        **{"stdout": subprocess.PIPE, **options},
    )


@pytest.fixture
def closed_pipe():
    """Return a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        yield pipe


def ending_of(error):
    """Return the exit code of a command that raises ``error`` below click."""

    @click.command()
    def raises():
        raise error

    group = LazyGroup("perfsvc")
    group.get_command = lambda context, name: raises
    return ending.code_of(lambda: group.main(["run"], standalone_mode=False))


def test_an_unforeseen_exception_is_a_fault_of_perfsvc_and_never_a_regression(capsys):
    for error in (RuntimeError("oops"), EOFError(), OSError(errno.EIO, "oops"), AssertionError()):
        assert ending_of(error) == 5
        err = capsys.readouterr().err
        assert f"raise error\n{type(error).__name__}" in err.replace("\n    ^^^^^^^^^^^", "")
        assert "error: this is a fault of perfsvc\n  cure: report it with the lines above and: perfsvc doctor" in err


FORESEEN = [
    (UsageError("no such run", cure="look"), 2, "error: no such run\n  cure: look\n"),
    (NoDeviceError("no GPU"), 5, "error: no GPU\n"),
    (click.BadParameter("no number"), 2, "Error: Invalid value: no number\n"),
    (OSError(errno.ENOSPC, "No space left", "a.csv"), 5, "error: a.csv cannot be written: No space left"),
    (KeyboardInterrupt(), 130, "interrupted; what was measured is stored\n"),
    (SystemExit(3), 3, ""),
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
]


def test_a_foreseen_error_has_its_exit_code_and_no_traceback(capsys):
    for error, code, message in FORESEEN:
        assert ending_of(error) == code, error
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err
        assert err.strip() or not message


def test_what_stops_a_command_before_it_measures_says_so(capsys):
    stopped = KeyboardInterrupt()
    stopped.add_note(NOTHING_MEASURED)
    of_click = click.Abort()
    of_click.__cause__ = stopped
    assert ending_of(of_click) == 130
    assert capsys.readouterr().err == "interrupted; nothing was measured\n"


@pytest.mark.parametrize(
    ("number", "before"), [(signal.SIGTERM, "with cli.ending.gently(): pass"), (signal.SIGHUP, "")]
)
def test_a_signal_unwinds_the_command_and_ends_it_with_the_shells_code_whatever_follows(number, before):
    body = f"""
    try:
        {before or "pass"}
        os.kill(os.getpid(), {int(number)})
        signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up")
    """
    process = ended(body)
    assert (process.returncode, process.stdout) == (128 + number, "cleaned up\n")
    assert process.stderr == f"stopped by {number.name}; what was measured is stored\n"


def test_a_gentle_block_finishes_before_the_command_ends():
    body = """
    try:
        with cli.ending.gently() as stopping:
            print(stopping())
            os.kill(os.getpid(), signal.SIGTERM)
            print(stopping())
        print("never")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up")
    """
    process = ended(body)
    assert (process.returncode, process.stdout) == (143, "False\nTrue\ncleaned up\n")
    assert process.stderr == "stopped by SIGTERM; what was measured is stored\n"


def test_a_second_signal_ends_a_gentle_block_at_once():
    body = """
    try:
        with cli.ending.gently():
            os.kill(os.getpid(), signal.SIGTERM)
            print("goes on")
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("cleaned up")
    """
    process = ended(body)
    assert (process.returncode, process.stdout) == (143, "goes on\ncleaned up\n")


def test_a_gentle_block_leaves_a_signal_that_is_not_ours_alone():
    for meaning in (signal.SIG_DFL, signal.SIG_IGN):
        before = signal.signal(signal.SIGTERM, meaning)
        try:
            with ending.gently() as stopping:
                assert signal.getsignal(signal.SIGTERM) is meaning
            assert not stopping()
        finally:
            signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_ignored():
    body = """
    os.kill(os.getpid(), signal.SIGHUP)
    print("alive")
    """
    process = ended(body, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert (process.returncode, process.stdout) == (0, "alive\n")


def test_signal_handlers_are_restored_after_a_command():
    before = [signal.getsignal(number) for number in ending.STOPS]
    with ending.stoppable():
        assert [signal.getsignal(number) for number in ending.STOPS] != before
    assert [signal.getsignal(number) for number in ending.STOPS] == before


PRINTING = {
    "click": "click.echo('x' * 200_000)",
    "rich": "from perfsvc.cli import output; output.show('x' * 200_000)",
    "a buffer": "sys.stdout.write('x')",
    "a verdict": "sys.stdout.write('x'); sys.exit(1)",
}


@pytest.mark.parametrize("body", PRINTING.values(), ids=PRINTING)
def test_a_closed_pipe_ends_a_command_quietly_and_a_verdict_keeps_its_exit_code(body, closed_pipe):
    process = ended(body, stdout=closed_pipe)
    assert (process.returncode, process.stderr) == (1 if "exit" in body else 141, "")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_are_opened_on_the_null_device(closed):
    body = """
    import socket
    for descriptor in socket.socketpair():
        assert descriptor.fileno() > 2
    from perfsvc.cli import output
    output.show("x")
    with output.progress() as progress:
        progress.report("y")
    sys.exit(3 if sys.stdin.read() == "" else 4)
    """
    process = ended(body, stdin=subprocess.DEVNULL, preexec_fn=lambda: [os.close(number) for number in closed])
    assert process.returncode == 3
    assert (process.stdout, process.stderr) == ("" if 1 in closed else "x\n", "" if 2 in closed else "y\n")


@pytest.mark.skipif(not FULL.exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("name", ["rich", "a buffer"])
def test_a_full_disk_is_reported_once(name):
    with FULL.open("w") as full:
        process = ended(PRINTING[name], stdout=full)
    assert process.returncode == 5
    assert process.stderr == "error: the output cannot be written: No space left on device\n  cure: make room\n"


def test_too_many_open_files_are_no_fault_of_perfsvc():
    limited = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
    finished = ended("open_files = [open('/dev/null') for _ in range(100)]", limited)
    assert finished.returncode == ending.FAULT
    assert "error: Too many open files\n  cure: permit more open files: ulimit -n 4096" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_command_raises_the_soft_limit_of_open_files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    lowered = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))"
    finished = ended("click.echo(resource.getrlimit(resource.RLIMIT_NOFILE)[0])", lowered)
    assert int(finished.stdout) == (4096 if hard == resource.RLIM_INFINITY else min(4096, hard)), finished.stderr


def test_a_stream_may_be_closed_before_its_wrapper():
    own = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = ending.InertStream(own)
    stream.write("x")
    own.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write("y")
