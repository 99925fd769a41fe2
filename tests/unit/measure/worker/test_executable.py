"""A program of a case, before it runs. What programs do while they run is in tests/e2e/test_programs.py."""

import pytest

from perfsvc.errors import ProgramError
from perfsvc.measure.worker.executable import _Program
from perfsvc.model import RunProgram


@pytest.mark.parametrize(("name", "cure"), [("tool.sh", "write ./tool.sh"), ("other", "install it")])
def test_a_missing_program_of_the_machine_is_looked_for_among_the_files(tmp_path, name, cure):
    step = RunProgram((name,), ("tool.sh",), "csv")
    with pytest.raises(ProgramError, match="this machine has no program") as raised:
        _Program(step, [b""], tmp_path, {"PATH": str(tmp_path)})
    assert cure in raised.value.cure
