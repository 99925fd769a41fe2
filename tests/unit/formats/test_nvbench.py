"""NVBench's files of samples, and what its JSON has instead of numbers.

The summaries that name files of samples are those that ``nvbench/json_printer.cu`` writes with ``--jsonbin``: the path
is relative to the folder of the JSON file, the numbers are little-endian float32.
"""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from perfsvc import formats
from perfsvc.errors import FormatError
from perfsvc.model import CacheState, Status

REAL = json.loads((Path(__file__).parents[2] / "data" / "formats" / "nvbench.json").read_text())
TIMES, CLOCKS = "nv/json/bin:nv/cold/sample_times", "nv/json/freqs-bin:nv/cold/sample_freqs"


def summary(tag, **values):
    kinds = {str: "string", int: "int64", float: "float64"}
    data = [{"name": name, "type": kinds[type(value)], "value": str(value)} for name, value in values.items()]
    return {"tag": tag, "name": tag, "description": "", "data": data}


class File:
    """NVBench's JSON with one state, and the files of samples beside it."""

    def __init__(self, folder):
        self.path = folder / "out.json"
        self.document = copy.deepcopy(REAL)
        self.document["benchmarks"] = self.document["benchmarks"][:1]
        (self.state,) = self.document["benchmarks"][0]["states"]

    def samples(self, tag, values, suffix, **other):
        folder = self.path.parent / f"out.json{suffix}"
        folder.mkdir()
        (folder / "0.bin").write_bytes(np.asarray(values, "<f4").tobytes())
        named = {"filename": f"out.json{suffix}/0.bin", "size": len(values)} | other
        self.state["summaries"].append(summary(tag, **named))

    def value(self, tag, value):
        """Replace the number of a summary."""
        (found,) = [one for one in self.state["summaries"] if one["tag"] == tag]
        found["data"] = [{"name": "value", "type": "float64", "value": value}]

    def read(self):
        self.path.write_text(json.dumps(self.document))
        return list(formats.read("nvbench", self.path))


@pytest.fixture
def file(tmp_path):
    return File(tmp_path)


def test_samples_come_from_the_file_beside_the_json_which_must_not_be_missing(file):
    file.samples(TIMES, [1e-4, 2e-4, 4e-4], "-bin")
    file.samples(CLOCKS, [1e9, 2e9, 1e9], "-freqs-bin")
    (one,) = file.read()
    assert one.samples_s == pytest.approx((1e-4, 2e-4, 4e-4))
    assert one.note == ""
    assert one.metrics["sm_cycles"] == pytest.approx(4e5), "the median of time and clock of each sample"
    (one,) = formats.parse("nvbench", json.dumps(file.document).encode())  # without a folder
    assert one.samples_s == (0.00022841599583625793,)
    (file.path.parent / "out.json-bin" / "0.bin").unlink()
    with pytest.raises(FormatError) as raised:
        file.read()
    assert raised.value.cure == "copy the folder out.json-bin to the place of the JSON file as well"


def test_samples_that_are_no_times_are_left_out_with_a_note_and_a_failure_without_any_time(file):
    file.samples(TIMES, [1e-4, float("nan"), float("inf"), 0.0, -1.0], "-bin")
    (one,) = file.read()
    assert one.samples_s == pytest.approx((1e-4,))
    assert one.note == "4 of 5 samples were left out, because they are not times above zero"
    (file.path.parent / "out.json-bin" / "0.bin").write_bytes(np.float32([float("nan")] * 5).tobytes())
    (one,) = file.read()
    assert (one.status, one.samples_s) == (Status.FAILED, ())


@pytest.mark.parametrize("other", [{"size": 2}, {"size": 4}, {"size": -1}, {"size": 1 << 40}])
def test_a_file_of_another_size_is_refused(file, other):
    file.samples(TIMES, [1e-4, 2e-4, 4e-4], "-bin", **other)
    with pytest.raises(FormatError, match=r"0\.bin|size"):
        file.read()


@pytest.mark.parametrize(
    "name", ["../../secret/0.bin", "/etc/secret/0.bin", "..\\..\\secret\\0.bin", "secret/../../0.bin"]
)
def test_a_path_does_not_leave_the_folder_of_the_json(file, tmp_path, name):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0.bin").write_bytes(np.float32([1e-4]).tobytes())
    (tmp_path / "0.bin").write_bytes(np.float32([1e-4]).tobytes())
    file.path = inner / "out.json"
    file.state["summaries"].append(summary(TIMES, filename=name, size=1))
    with pytest.raises(FormatError, match="cannot be read"):
        file.read()


def test_a_link_is_not_followed(file, tmp_path):
    (tmp_path / "secret.bin").write_bytes(np.float32([1e-4]).tobytes())
    (tmp_path / "out.json-bin").mkdir()
    (tmp_path / "out.json-bin" / "0.bin").symlink_to(tmp_path / "secret.bin")
    file.state["summaries"].append(summary(TIMES, filename="out.json-bin/0.bin", size=1))
    with pytest.raises(FormatError, match="links are not followed"):
        file.read()


def test_a_path_relative_to_another_folder_is_found_beside_the_json(file):
    """Older versions of NVBench wrote the path as the working directory saw it."""
    file.samples(TIMES, [1e-4], "-bin", filename="results/today/out.json-bin/0.bin")
    (one,) = file.read()
    assert one.samples_s == pytest.approx((1e-4,))


def test_a_state_that_was_skipped_or_has_no_summaries_is_skipped_with_its_reason(file):
    file.state |= {"is_skipped": True, "skip_reason": "Not enough memory", "summaries": None}
    (one,) = file.read()
    assert (one.status, one.reason) == (Status.SKIPPED, "Not enough memory")
    file.state |= {"is_skipped": False, "skip_reason": None}
    (one,) = file.read()
    assert one.status is Status.SKIPPED


def test_axes_are_the_point(file):
    file.state["axis_values"] = [
        {"name": "T", "type": "string", "value": "F32"},
        {"name": "Elements", "type": "int64", "value": str(1 << 40)},
        {"name": "Ratio", "type": "float64", "value": "0.5"},
        {"name": "Limit", "type": "float64", "value": "inf"},
    ]
    (one,) = file.read()
    assert one.point == (("T", "F32"), ("Elements", 1 << 40), ("Ratio", 0.5), ("Limit", "inf"))


def test_times_of_the_cpu_and_of_many_launches_are_taken_without_cold_times(file):
    kept = [one for one in file.state["summaries"] if not one["tag"].startswith("nv/cold/")]
    file.state["summaries"] = [*kept, summary("nv/cpu_only/time/cpu/mean", value=2.5e-4)]
    (of_cpu,) = file.read()
    assert (of_cpu.samples_s, of_cpu.cache) == ((2.5e-4,), CacheState.WARM)
    file.state["summaries"] = kept
    (of_batch,) = file.read()
    assert of_batch.samples_s == (0.0002267493532415022,)


def test_a_median_that_is_no_time_leaves_the_mean_and_a_file_that_nvbench_could_not_write_the_median(file):
    file.state["summaries"] += [summary(TIMES), summary("mine/word", value="fast"), summary("mine/number", value=3)]
    (one,) = file.read()
    assert one.samples_s == (0.00022841599583625793,)
    assert "mine/word" not in one.counters  # a text is no number
    assert one.counters["mine/number"] == 3
    median = "nv/cold/time/gpu/median"
    for value in ("nan", "inf", "-inf", "0", None):
        file.value(median, value)
        (one,) = file.read()
        assert one.samples_s == (0.00022856194429249303,), value
        assert one.counters.get(median, 0) == 0, value


def test_another_version_and_a_state_on_an_unknown_device_are_refused(file):
    device, file.state["device"] = file.state["device"], 7
    with pytest.raises(FormatError, match=r"states\[0\]\.device"):
        file.read()
    file.state["device"] = device
    file.document["meta"]["version"]["json"] = {"major": 2, "string": "2.0.0"}
    with pytest.raises(FormatError, match=r"version is 2\.0\.0"):
        file.read()
