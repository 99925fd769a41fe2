"""A program of a case, before it runs. What programs do while they run is in tests/e2e/test_programs.py."""

import pytest

from perfsvc.errors import ProgramError
from perfsvc.measure.worker.executable import _Program
from perfsvc.model import RunProgram


def test_a_missing_program_of_the_machine_is_looked_for_among_the_files(tmp_path):
    for name, cure in {"tool.sh": "write ./tool.sh", "other": "install it"}.items():
        step, folder = RunProgram((name,), ("tool.sh",), "csv"), tmp_path / name
        folder.mkdir()
        with pytest.raises(ProgramError, match="this machine has no program") as raised:
            _Program(step, [b""], folder, {"PATH": str(folder)})
        assert cure in raised.value.cure
