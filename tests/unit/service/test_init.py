"""What `perfsvc init` writes: perfsvc.toml, a bench.py for Triton kernels, and jobs of GitHub and GitLab."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from perfsvc.config import Settings, load
from perfsvc.config.keys import ARRAYS, KEYS
from perfsvc.errors import ConfigError, UsageError
from perfsvc.service import init
from perfsvc.service.ci.files import GITHUB, GITLAB, write_github, write_gitlab
from perfsvc.service.init_triton import read, write
from perfsvc.suite import Selection, discover


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PERFSVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def uncommented(text):
    """Return the text with every key set."""
    return re.sub(r"^# (?=[\w\"]+ = |\[\[)", "", text, flags=re.MULTILINE)


def test_the_written_file_loads_as_the_defaults_and_a_suite_with_quotes_in_its_name():
    suite = Path('a "b" \\ c')
    init.write(Path("perfsvc.toml"), suite, force=False)
    loaded = load()
    assert loaded.settings == Settings(suite=suite)
    assert [key for key in KEYS if loaded.given(key)] == ["suite"]


def test_every_key_is_written_as_a_comment_with_its_default_or_an_example():
    text = init.text(None)
    found = tomllib.loads(uncommented(text))
    written = {f"{table}.{key}" for table, keys in found.items() if isinstance(keys, dict) for key in keys}
    assert written | set(found) - {table.partition(".")[0] for table in written} == set(KEYS)
    assert set(found["thresholds"][0]) == set(ARRAYS["thresholds"])
    assert set(found["notify"]["route"][0]) == set(ARRAYS["notify.route"])
    assert not [line for line in text.splitlines() if line and not line.startswith(("#", "["))]


def test_a_key_with_its_comment_removed_has_its_default_or_an_example(folder):
    (folder / "perfsvc.toml").write_text(uncommented(init.text(Path("kernels"))))
    settings = load().settings
    assert settings.thresholds[0].cases == settings.notify.route[0].cases == "*"
    for key in [key for key in KEYS.values() if key.dotted not in ARRAYS]:
        value = getattr(getattr(settings, key.table), key.name) if key.table else getattr(settings, key.name)
        assert (value == key.default) is (key.example is None), key.dotted


def test_an_existing_file_is_kept(folder):
    path = Path("perfsvc.toml")
    path.write_text("# mine")
    with pytest.raises(ConfigError, match="it exists already, and was not changed"):
        init.write(path, None, force=False)
    assert path.read_text() == "# mine"
    init.write(path, None, force=True)
    assert path.read_text() == init.text(None)
    assert [path.name for path in folder.iterdir()] == ["perfsvc.toml"]


@pytest.mark.parametrize("force", [True, False])
def test_no_link_is_written_through(folder, force):
    (folder / "victim").write_text("mine")
    for name in (f".perfsvc.toml.{os.getpid()}", *(["perfsvc.toml"] if force else [])):
        (folder / name).symlink_to("victim")
    init.write(Path("perfsvc.toml"), None, force=force)
    assert (folder / "victim").read_text() == "mine"
    assert (folder / "perfsvc.toml").read_text() == init.text(None)
    assert not (folder / "perfsvc.toml").is_symlink()


def test_a_full_disk_leaves_no_file_and_a_missing_folder_is_reported(folder, full_disk):
    with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
        init.write(Path("perfsvc.toml"), None, force=False)
    assert not list(folder.iterdir())
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        init.write(Path("nowhere/perfsvc.toml"), None, force=False)


def test_the_suite_in_the_folder_is_found(folder):
    suites = {
        ("kernels/dot/bench.py", "benchmarks/dot/bench.py"): Path("kernels"),
        ("benchmarks/dot/bench.py", "kernels/readme"): Path("benchmarks"),
        ("mine/dot/bench.py",): Path("mine"),
        ("dot/bench.py",): Path(),
        ("readme",): None,
    }
    for place, (files, suite) in enumerate(suites.items()):
        for file in files:
            path = folder / str(place) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        assert init.suite_in(folder / str(place)) == suite


# --- kernels of Triton, which are read and not run -------------------------------------------------------------------


SOURCE = """
raise RuntimeError("this file is read, and not run")

import triton
import triton.language as tl


@triton.jit
def square(x):
    return x * x


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(x_ptr + i, mask=inside) + 2.0 * tl.exp(tl.load(y_ptr + i, mask=inside))
    tl.store(out_ptr + i, total.to(tl.float32), mask=inside)


@triton.autotune(configs=[triton.Config({"TILE_BLOCK": 64})], key=["m"])
@triton.jit
def _row_sums(a, sums, m, n, stride_m, scale, TILE_BLOCK: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr = True):
    row = tl.program_id(1) * TILE_BLOCK + tl.arange(0, TILE_BLOCK)
    pointers = a + row * stride_m
    total = 0.0
    for _ in range(n):
        total += square(tl.load(pointers)) * scale
        pointers += 1
    tl.atomic_add(sums + row, total)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine" / "kernels.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def test_the_text_of_a_kernel_shows_its_arrays_sizes_and_constants(file):
    add, sums = read(file)
    assert (add.name, add.read, add.written) == ("add_kernel", ("x_ptr", "y_ptr"), ("out_ptr",))
    assert (add.sizes, add.numbers, add.constants, add.dimensions) == (("n",), (), ("BLOCK",), 1)
    assert add.reference == {"out_ptr": "(x_ptr + (2.0 * np.exp(y_ptr)))"}
    assert (sums.read, sums.written) == (("a", "sums"), ("sums",))
    assert (sums.sizes, sums.numbers) == (("m", "n"), ("stride_m", "scale"))
    assert (sums.constants, sums.tuned, sums.dimensions, sums.reference) == (("WIDTH",), ("TILE_BLOCK",), 2, {})


def test_an_elementwise_kernel_can_be_listed_and_resolved_at_once(file, tmp_path):
    paths = write(file, tmp_path / "kernels", force=False)
    assert [path.parent.name for path in paths] == ["add", "row_sums"]
    found = discover(tmp_path / "kernels")
    (spec,) = found.resolve(Selection(("add",)), "full")[0]
    assert spec.units[0].source.resolve() == file
    assert spec.steps[0].package.configurations[0].grid == (2**24 // 1024,)
    (problem,) = found.problems
    assert problem.what.startswith("reference raised NotImplementedError: write the reference of _row_sums")


def test_a_kernel_whose_reference_is_filled_in_can_be_listed(file, tmp_path):
    path = write(file, tmp_path / "kernels", force=False)[1]
    text = path.read_text()
    assert "def grid(m, TILE_BLOCK):  # TODO" in text
    assert "f64(1.0),  # TODO: scale" in text
    assert "i64(1),  # TODO: stride_m" in text
    path.write_text(text.replace('raise NotImplementedError("write the reference of _row_sums")', "return sums"))
    assert discover(tmp_path / "kernels").problems == ()


def test_existing_files_are_kept(file, tmp_path):
    (path, other) = write(file, tmp_path / "kernels", force=False)
    path.write_text("mine")
    other.unlink()
    with pytest.raises(UsageError, match="exists already, and nothing was written"):
        write(file, tmp_path / "kernels", force=False)
    assert (path.read_text(), other.exists()) == ("mine", False)
    write(file, tmp_path / "kernels", force=True)
    assert path.read_text() != "mine"


def test_a_file_without_kernels_is_refused(file, tmp_path):
    refused = {
        "def f(: pass": "is not valid Python: invalid syntax",
        "def f(): pass": "has no Triton kernel",
        "x = '\0'": "is not valid Python",
    }
    for text, what in refused.items():
        file.write_text(text)
        with pytest.raises(UsageError, match=what):
            write(file, tmp_path / "kernels", force=False)
    assert not (tmp_path / "kernels").exists()
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.py")


# --- jobs of GitHub and GitLab, and the action -----------------------------------------------------------------------


ROOT = Path(__file__).parents[3]
ACTION = "ada/perfsvc@v0.1.0"
GITLAB_SOURCE = "git+https://gitlab.example.com/tools/perfsvc@v0.1.0"
HARD = Path('my "kernels": #1 @ACTION@')


def read_yaml(path):
    return yaml.load(path.read_text(), yaml.BaseLoader)  # noqa: S506 - text only: no "on" becomes True


def steps_of(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_workflows_use_the_action_with_inputs_that_it_has(tmp_path):
    inputs = set(read_yaml(ROOT / "action.yml")["inputs"])
    paths = write_github(tmp_path, ACTION, HARD, force=False)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == list(GITHUB)
    ours = [step for path in paths for step in steps_of(read_yaml(path)) if step.get("uses") == ACTION]
    assert len(ours) == 3
    assert set().union(*(step["with"] for step in ours)) <= inputs
    assert [step["with"]["suite"] for step in ours[:2]] == [str(HARD)] * 2


def test_only_the_jobs_that_write_may_write_and_checkouts_keep_no_token(tmp_path):
    first, second = map(read_yaml, write_github(tmp_path, ACTION, Path("kernels"), force=False))
    assert first["permissions"] == {"contents": "read"}
    assert second["permissions"] == {}
    for job in [*first["jobs"].values(), *second["jobs"].values()]:
        assert {name for name, level in job["permissions"].items() if level == "write"} == {"checks", "pull-requests"}
    for step in steps_of(first):
        assert not step.get("uses", "").startswith("actions/checkout") or step["with"]["persist-credentials"] == "false"


def test_the_second_workflow_runs_no_code_of_a_pull_request(tmp_path):
    second = read_yaml(write_github(tmp_path, ACTION, Path("kernels"), force=False)[1])
    assert second["on"]["workflow_run"]["workflows"] == ["perfsvc"]
    assert [step["uses"].partition("@")[0] for step in steps_of(second)] == [
        "actions/download-artifact",
        ACTION.partition("@")[0],
    ]


def test_shellcheck_finds_nothing_in_the_scripts_and_those_of_the_action_contain_no_expression(tmp_path):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck
    gitlab = read_yaml(write_gitlab(tmp_path, GITLAB_SOURCE, Path("kernels"), force=False)[0])
    scripts = [step["run"] for step in read_yaml(ROOT / "action.yml")["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    scripts += ["\n".join([*gitlab[".perfsvc"]["before_script"], *gitlab[".perfsvc"]["after_script"]])]
    scripts += ["\n".join(job["script"]) for job in gitlab.values() if "script" in job]
    files = [tmp_path / f"script{place}.sh" for place, _ in enumerate(scripts)]
    for file, script in zip(files, scripts, strict=True):
        file.write_text(f"#!/bin/bash\nset -euo pipefail\n{script}\n")
    checked = subprocess.run([shellcheck, "-e", "SC2154", *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_jobs_of_gitlab_write_the_reports_that_they_name(tmp_path):
    (path,) = write_gitlab(tmp_path, GITLAB_SOURCE, HARD, force=False)
    assert path.name == next(iter(GITLAB))
    jobs = read_yaml(path)
    common = jobs[".perfsvc"]
    assert common["variables"]["PERFSVC_SOURCE"] == GITLAB_SOURCE
    assert common["variables"]["PERFSVC_SUITE"] == str(HARD)
    for name in ("perfsvc check", "perfsvc compare"):
        files = dict(re.findall(r"--output (\w+)=(\S+)", " ".join(jobs[name]["script"])))
        assert [files["json"]] == common["artifacts"]["paths"]
        assert {name: files[name] for name in ("codequality", "junit")} == common["artifacts"]["reports"]


def test_an_existing_file_is_kept_without_force(tmp_path):
    (first, second) = write_github(tmp_path, ACTION, Path("kernels"), force=False)
    first.unlink()
    second.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_github(tmp_path, ACTION, Path("kernels"), force=False)
    assert not first.exists()
    assert second.read_text() == "mine"
    write_github(tmp_path, ACTION, Path("kernels"), force=True)
    assert second.read_text() != "mine"


def test_an_action_a_source_and_a_suite_that_cannot_be_are_refused(tmp_path):
    suite = Path("kernels")
    for action in ("perfsvc", "ada/perfsvc", "ada/perfsvc@", "a/b@v1\nx: y", "a/b@${{ x }}", "./local"):
        with pytest.raises(UsageError, match="no action of GitHub"):
            write_github(tmp_path, action, suite, force=False)
    for source in ("perfsvc", "./perfsvc", 'https://x"; rm -rf /', "https://x/$TOKEN"):
        with pytest.raises(UsageError, match="no URL of perfsvc"):
            write_gitlab(tmp_path, source, suite, force=False)
    for outside in ("/abs", "../up", "${{ secrets.X }}"):
        with pytest.raises(UsageError, match="is not in this folder"):
            write_github(tmp_path, ACTION, Path(outside), force=False)
