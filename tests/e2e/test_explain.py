"""``perfsvc explain`` on reports of Nsight Compute, as a person types it."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture
def explain(tmp_path):
    def run(*arguments):
        command = [sys.executable, "-m", "perfsvc", "explain", *map(str, arguments)]
        environment = {**os.environ, "COLUMNS": "120"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def reports(ncu_report):
    return ncu_report("transpose-padded"), ncu_report("transpose-tiled")


def test_a_transpose_without_padding_is_slower_for_its_bank_conflicts(explain, reports):
    done = explain(*reports)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2.0 × slower: shared-memory bank conflicts (loads 1-way → 32-way) can account for all of it." in done.stdout
    assert "shared_bank_conflicts" in done.stdout


def test_with_padding_it_is_faster_for_the_same_reason(explain, reports):
    told = json.loads(explain(*reversed(reports), "--format", "json").stdout)
    assert told["factor"] == pytest.approx(0.507, abs=1e-3)
    assert told["sentence"].startswith("2.0 × faster: fewer shared-memory bank conflicts")
    assert told["reasons"][0]["kind"] == "bank conflicts"


@pytest.mark.parametrize(("ending", "head"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("html", b"<!doctype html>")])
def test_a_roofline_is_drawn_by_the_files_ending(explain, reports, tmp_path, ending, head):
    assert explain(*reports, "--roofline", f"roofline.{ending}").returncode == 0
    assert (tmp_path / f"roofline.{ending}").read_bytes().startswith(head)


def test_a_picture_of_another_kind_is_refused_before_anything_is_read(explain, reports):
    done = explain("none.ncu-rep", "none.ncu-rep", "--roofline", "roofline.gif")
    assert done.returncode == 2
    assert "name it like roofline.svg" in done.stderr


def test_a_file_that_is_no_report_ends_with_a_cure(explain, reports, tmp_path):
    broken = tmp_path / "broken.ncu-rep"
    broken.write_bytes(reports[1].read_bytes()[:1000])
    done = explain(reports[0], broken)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a whole report" in done.stderr
    assert "cure: profile the launch again" in done.stderr


def test_a_report_of_another_kernel_is_refused(explain, reports):
    done = explain(*reports, "--kernel", "transpose_pad")
    assert done.returncode == 2
    assert "is of the kernel transpose_tiled, not of transpose_pad" in done.stderr
