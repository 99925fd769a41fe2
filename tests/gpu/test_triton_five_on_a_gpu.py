"""Five Triton kernels on a GPU: from nothing to a judged night in five commands, and a slowdown that is found."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gpu import commands

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "triton")), reason="there is no Triton"
    ),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git"),
]

SUITE = Path(__file__).parent / "suites" / "triton_five"
AGAIN = """\
    for _ in range(columns // 512):
        powers = tl.exp(tl.log(powers))
"""
"""Lines that make the softmax slower, and no other: each power becomes its logarithm and itself again."""
IGNORED = "perfsvc.db*\nnights/\n"
CASE = "softmax/triton[rows=8192,columns=4096]"


class Repository(commands.Workplace):
    """A git repository with the suite."""

    def perfsvc(self, *arguments, codes=(0,)):
        done = commands.perfsvc(self.folder, *arguments, limit_s=900)
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments, codes=(0,)):
        return self.perfsvc("run", "--suite", "kernels", "--device", self.device, *arguments, codes=codes)

    def git(self, *arguments):
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.folder, *who, *arguments], check=True, capture_output=True)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)


@pytest.fixture(scope="module")
def measured(gpus, tmp_path_factory):
    """The suite without the variants of PyTorch, committed and measured once."""
    workplace = Repository(tmp_path_factory.mktemp("five"), gpus[0].spec)
    shutil.copytree(SUITE, workplace.suite)
    (workplace.folder / ".gitignore").write_text(IGNORED, encoding="utf-8")
    workplace.git("init", "-q", "-b", "main")
    workplace.commit("five kernels")
    workplace.run("--select", "*/triton", "--limit", "300")
    return workplace


@pytest.fixture
def workplace(measured, tmp_path):
    shutil.copytree(measured.folder, tmp_path, dirs_exist_ok=True)
    return Repository(tmp_path, measured.device)


def test_every_kernel_is_right_and_its_choice_cubin_and_compile_time_are_stored(measured):
    statuses = measured.rows("select status, count(*) from measurements group by status")
    assert statuses == [("ok", 15)], measured.rows("select reason from measurements")
    kernels = [
        kernel
        for (record,) in measured.rows("select record from python_codes")
        for kernel in json.loads(record)["kernels"]
    ]
    assert {kernel["name"] for kernel in kernels} == {
        f"{name}_kernel" for name in ("add", "attention", "layer_norm", "matmul", "softmax")
    }
    assert all(kernel["cubin"] and kernel["code"] for kernel in kernels)
    chosen = [dict(kernel["options"])["COLUMNS"] for kernel in kernels if kernel["name"] == "matmul_kernel"]
    assert set(chosen) <= {"128", "256"}
    notes = [note for (note,) in measured.rows("select note from measurements where note like '%tuning chose%'")]
    assert len(notes) == 6  # matmul and attention, three replicas each
    named = dict(measured.rows("select name, count(*) from metrics group by name"))
    assert named["compile_s"] == 15
    assert named["registers"] == 15


def test_the_variants_of_pytorch_are_right(measured):
    measured.run("--select", "*/torch", "--select", "*/compiled", "--replicas", "1", "--limit", "300")
    statuses = measured.rows("select distinct status from measurements where run_id = (select max(id) from runs)")
    assert statuses == [("ok",)], measured.rows("select reason from measurements where status != 'ok'")


def test_five_commands_from_nothing_to_a_judged_night(gpus, tmp_path):
    workplace = Repository(tmp_path, gpus[0].spec)
    shutil.copy(SUITE / "add" / "add.py", tmp_path / "mine.py")
    (tmp_path / ".gitignore").write_text(IGNORED, encoding="utf-8")
    workplace.git("init", "-q", "-b", "main")
    workplace.perfsvc("init", "--triton", "mine.py")  # 1
    workplace.perfsvc("init")  # 2
    assert "add/triton[n=16777216]" in workplace.perfsvc("list", "--suite", "kernels")  # 3
    workplace.commit("a suite")
    workplace.perfsvc("nightly")  # 4
    workplace.perfsvc("nightly")  # 5
    verdicts = workplace.rows(
        "select verdict from levels join series on series.id = series_id where metric = 'time' and run_id = 2"
    )
    assert set(verdicts) == {("unchanged",)}


def test_a_slower_kernel_is_confirmed_explained_and_bisected(workplace):
    for place in range(4):
        if place == 2:
            workplace.change("softmax/softmax.py", "tl.max(values, axis=0))\n", "tl.max(values, axis=0))\n" + AGAIN)
        (workplace.folder / "NOTES").write_text(f"commit {place}\n", encoding="utf-8")
        workplace.commit(f"commit {place}")
    printed = workplace.run("--select", "softmax/triton", "--confirm", "--profile", "--limit", "300", codes=(1,))
    measured = "select cause from confirmations join series on series.id = series_id where metric = 'time'"
    assert workplace.rows(measured) == [("kernel",)], printed
    explained = workplace.rows("select sentence from explanations")
    assert explained, (printed, workplace.rows("select reason from profiles"))
    command = ["bisect", CASE, "--good", "HEAD~4", "--device", workplace.device, "--suite", "kernels"]
    found = json.loads(workplace.perfsvc(*command, "--format", "json", codes=(1,)))
    assert [commit["subject"] for commit in found["culprits"]] == ["commit 2"]


def test_other_python_with_the_same_cubin_is_the_same_code(workplace):
    workplace.change("softmax/softmax.py", "powers", "exponentials")
    printed = workplace.run("--select", "softmax/triton", "--confirm", "--limit", "300", codes=(0, 1))
    kernels = [
        kernel
        for (record,) in workplace.rows("select record from python_codes")
        for kernel in json.loads(record)["kernels"]
        if kernel["name"] == "softmax_kernel"
    ]
    assert len({kernel["source"] for kernel in kernels}) == 2
    assert len({kernel["code"] for kernel in kernels}) == 1
    causes = workplace.rows(
        "select cause from levels join series on series.id = series_id where run_id = 2 and metric = 'time'"
    )
    assert causes, printed
    assert {cause for (cause,) in causes} <= {None, "noise", "environment"}, printed
