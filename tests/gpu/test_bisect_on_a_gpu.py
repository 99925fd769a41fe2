"""The commit that made a kernel slower, found on a GPU among some that did not."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu.commands import perfsvc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]

KERNELS = Path(__file__).parents[2] / "kernels"
CASE = "transpose/tiled-TILE32-PAD1[n=4096]"


@pytest.fixture
def history(tmp_path):
    """Six commits of ``transpose``: the fourth removes the padding, which the parameters do not show."""
    suite = tmp_path / "repository" / "kernels"
    shutil.copytree(KERNELS / "transpose", suite / "transpose")
    git(suite.parent, "init", "-q", "-b", "main")
    source = next(path for path in suite.rglob("*.cu") if "TILE + PAD" in path.read_text(encoding="utf-8"))
    text = source.read_text(encoding="utf-8")
    for place in range(6):
        padded = text if place < 3 else text.replace("TILE + PAD", "TILE + 0 * PAD")
        source.write_text(f"{padded}__device__ int commit_{place}() {{ return {place}; }}\n", encoding="utf-8")
        git(suite.parent, "add", "-A")
        git(suite.parent, "commit", "-q", "-m", f"commit {place}")
    return suite


def git(folder, *arguments):
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


def test_the_commit_that_removed_the_padding_is_found_with_few_comparisons(gpus, history, tmp_path):
    command = ["bisect", CASE, "--good", "HEAD~5", "--device", gpus[0].spec, "--suite", history, "--format", "json"]
    done = perfsvc(tmp_path, *command, limit_s=550, PERFSVC_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [commit["subject"] for commit in found["culprits"]] == ["commit 3"]
    assert found["proven"]
    assert found["proof"]["ratio"] > 1.3
    # A function that no kernel calls is not in the code: all commits on either side are the same to the GPU.
    assert (found["codes"], len(found["trials"])) == (2, 1)
