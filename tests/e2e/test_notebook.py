"""docs/how-to/analyse-results.ipynb: every cell runs on the database of two runs, and the stored outputs are small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "how-to" / "analyse-results.ipynb"
EXECUTE = """
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
client = nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": "."}})
nbformat.write(client.execute(), sys.argv[2])
"""


def cells(notebook):
    """The code cells of a notebook: their text, and the text of their outputs."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            outputs = [output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]]
            yield "".join(cell["source"]), "".join("".join(output) for output in outputs)


def measure_twice(perfsvc):
    """Two runs; in the second, one case is slower."""
    suite = perfsvc.own("scale")
    usual = {"seconds": 1e-4}
    perfsvc.play({"*": usual})
    perfsvc.fake(suite=suite, code=0)
    perfsvc.rebuild(suite)
    perfsvc.play({"*": usual, "scale/beta[n=100]": {"seconds": 1.2e-4}})
    perfsvc.fake("--confirm", suite=suite)


def test_every_cell_runs_and_shows_the_slower_case(perfsvc):
    pytest.importorskip("nbclient")
    assert NOTEBOOK.stat().st_size < 60_000
    measure_twice(perfsvc)
    executed = perfsvc.folder / "executed.ipynb"
    environment = {name: value for name, value in perfsvc.environment.items() if name != "PERFSVC_DB"} | {
        "IPYTHONDIR": str(perfsvc.folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(perfsvc.folder / "jupyter"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # of the kernel too
    }
    command = [sys.executable, "-c", EXECUTE, NOTEBOOK, executed]
    ended = subprocess.run(
        command, cwd=perfsvc.folder, env=environment, capture_output=True, text=True, check=False, timeout=110
    )
    assert ended.returncode == 0, ended.stderr
    outputs = dict(cells(executed))
    (comparison,) = [output for text, output in outputs.items() if "comparison[[" in text]
    assert "scale/beta[n=100]  regression    1.2" in comparison
    (error,) = [output for text, output in outputs.items() if "PerfsvcError" in text]
    assert "cure:" in error
