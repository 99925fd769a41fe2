"""Text that no output can take as it is: NUL, lone surrogates, and characters that the terminal's encoding lacks."""

import shutil

import pytest

from tests.e2e.stored_text import fill, replace_texts, stored

SURROGATE = "\udcff lone, é, ✓, 数 "


@pytest.fixture(scope="module")
def odd(new_workplace):
    """A workplace with odd texts in all fields, and its case."""
    workplace = new_workplace()
    fill(workplace.database)
    replace_texts(workplace.database, lambda text: stored(f"{SURROGATE}{text}"))
    ((case,),) = workplace.rows("SELECT name FROM cases WHERE variant LIKE '%shared'")
    shutil.copytree(workplace.suites / "scale", workplace.folder / "scale")
    return workplace, case


COMMANDS = {
    "report": (),
    "show": (),
    "compare": ("1", "3"),
    "findings": (),
    "findings show": ("3",),
    "runs": (),
    "check": ("--suite", "scale", "--arch", "sm_90"),
    "list": ("--suite", "scale"),
    "doctor": (),
    "config show": (),
    "expect": (),
    "baseline show": (),
}


def process(workplace, encoding, *arguments):
    """Run a command in a process whose standard streams have an encoding; return its exit code and what it wrote."""
    workplace.environment["PYTHONIOENCODING"] = encoding
    with workplace.start(*arguments, encoding=encoding) as started:
        out, err = started.communicate(timeout=100)
    assert "Traceback" not in err
    return started.returncode, out


def test_no_command_fails_for_an_encoding(odd):
    workplace, case = odd
    for encoding, command in [*(("ascii", command) for command in COMMANDS), ("latin-1", "report")]:
        arguments = (case,) if command == "show" else COMMANDS[command]
        ended = workplace(*command.split(), *arguments, encoding=encoding)
        assert "Traceback" not in ended.err, command
        assert ended.code in ({0, 5} if command == "doctor" else {0, 1, 4}), command
        assert ended.out, command


def test_a_lone_surrogate_in_a_reason_is_stored_and_shown(perfsvc):
    fill(perfsvc.database)
    reason = "\udcff the GPU was shared ✓"
    assert process(perfsvc, "ascii", "runs", "exclude", "2", "--reason", reason)[0] == 0
    assert "the GPU was shared" in process(perfsvc, "latin-1", "runs", "history")[1]
    shown = perfsvc("runs", "history", "--format", "json", code=0).json
    assert shown[-1]["reason"] == stored(reason)
    assert process(perfsvc, "ascii", "show", "\udcff/\ud7ff[✓]")[0] == 2
