"""``perfsvc compare``: files beside the table, two GPUs, two models and two variants."""

import json

import pytest

USUAL = {"seconds": 1e-4}
SLOW = {"seconds": 1.05e-4}


@pytest.fixture(scope="session")
def two_runs(prepared):
    """Return a workplace with a run and a later one in which a case is slower."""

    def prepare(perfsvc):
        suite = perfsvc.own("scale")
        for times in (USUAL, SLOW):
            perfsvc.play({"*": USUAL, "scale/alpha": times})
            perfsvc.fake("--replicas", "2", suite=suite)
            perfsvc.rebuild(suite)

    return lambda: prepared(prepare)


def play_gpu(perfsvc, uuid, model, seconds):
    """Write the script of a fake GPU, and return its name for ``--device``."""
    path = perfsvc.folder / f"{uuid}.json"
    path.write_text(json.dumps({"cases": {"*": {"seconds": seconds}}, "uuid": uuid, "model": model}))
    return f"fake:{path}"


@pytest.fixture(scope="session")
def gpus(prepared):
    """Return a workplace with a run on two GPUs of one model and a run on one of another model."""

    def prepare(perfsvc):
        old = [play_gpu(perfsvc, f"H100-{n}", "H100", seconds) for n, seconds in enumerate((1e-4, 1.002e-4))]
        new = play_gpu(perfsvc, "H200-0", "H200", 0.8e-4)
        for devices in (old, [new]):
            options = [word for device in devices for word in ("--device", device)]
            perfsvc("run", *options, "--suite", perfsvc.suites / "scale", "--replicas", "3", code=0)

    return lambda: prepared(prepare)


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_have_what_their_format_prints_and_a_page_has_links_to_files_like_it(two_runs):
    perfsvc = two_runs()
    forms = {"a.md": "github", "a.csv": "csv", "a.xml": "junit", "a.sarif": "sarif", "codequality=a": "codequality"}
    perfsvc("compare", "1", "2", *(word for name in forms for word in ("--output", name)), code=1)
    for name, form in forms.items():
        printed = perfsvc("compare", "1", "2", "--format", form, code=1).out
        assert (perfsvc.folder / name.rpartition("=")[2]).read_text() == printed, name
    perfsvc("compare", "@baseline", "2", "--output", "compare.html", code=1)
    text = (perfsvc.folder / "compare.html").read_text()
    assert "<code>perfsvc compare @baseline 1 --output compare.html</code>" in text


@pytest.mark.quick
def test_a_file_of_no_known_format_is_refused_before_anything_is_compared(two_runs):
    perfsvc = two_runs()
    formats = "json, github, junit, csv, html, sarif, codequality"
    for output, message in {
        "compare.pdf": "has no suffix of a known format",
        "compare": "has no suffix of a known format",
        "table=a.html": f"is no FORMAT=FILE; the formats are {formats}",
        "sarf=a.sarif": "is no FORMAT=FILE",
        "json=": "is no FORMAT=FILE",
        "json=.": "is a directory",
    }.items():
        ended = perfsvc("compare", "no", "run", "--output", output, code=2)
        assert message in " ".join(ended.err.split())


# --- GPUs and variants -----------------------------------------------------------------------------------------------


def verdicts(ended):
    return {row["case"]: (row["verdict"], round(row["ratio"], 3), row["device"]) for row in ended.json["verdicts"]}


def test_two_gpus_of_one_run_are_compared_and_a_slower_one_is_no_regression_for_ci(gpus):
    ended = gpus()("compare", "--gpus", "H100-0", "H100-1", "--threshold", "0.1%", "--format", "json", code=0)
    assert set(verdicts(ended).values()) == {("regression", 1.002, "H100-1")}
    assert (ended.json["base"], ended.json["new"]) == (1, 1)
    assert ended.json["review"]["passed"]
    assert {remark["level"] for remark in ended.json["review"]["remarks"]} == {"notice"}


def test_two_models_of_two_runs_are_compared_with_the_spread_of_the_gpus_in_the_interval(gpus):
    perfsvc = gpus()
    ended = perfsvc("compare", "--gpus", "H100", "H200", "--format", "json", code=0)
    assert set(verdicts(ended).values()) == {("improvement", 0.799, "H200-0")}
    assert {row["device_model"] for row in ended.json["verdicts"]} == {"H200"}
    assert all("2 other GPUs of H100" in row["reason"] for row in ended.json["verdicts"])
    assert "H200-0 in run 2" in perfsvc("compare", "--gpus", "H100-1", "H200-0", "1", "2", code=0).out


@pytest.mark.quick
def test_parts_that_cannot_be_compared_are_refused_with_a_cure(gpus):
    perfsvc = gpus()
    for message, arguments in {
        "are the same GPU": ("--gpus", "H100-0", "H100-0"),
        "no measured GPU has the UUID or the model 'V100'": ("--gpus", "H100", "V100"),
        "run 1 has no result of H200": ("--gpus", "H100", "H200", "1"),
        "--gpus names the devices": ("--gpus", "H100", "H200", "--device", "H100"),
        "exclude each other": ("--gpus", "H100", "H200", "--variants", "a", "b"),
        "is named twice": ("--variants", "scale/alpha", "scale/alpha"),
        "name one of scale/alpha, scale/beta, scale/gamma": ("--variants", "scale/alpha", "scale/nothing"),
        "select": ("--variants", "scale/alpha", "scale/beta", "--select", "nothing"),
    }.items():
        assert message in perfsvc("compare", *arguments, code=2).err


def test_a_variant_is_compared_with_itself_in_another_run(two_runs):
    ended = two_runs()("compare", "--variants", "scale/alpha", "scale/alpha", "1", "2", "--format", "json", code=0)
    assert verdicts(ended) == {"scale/alpha[n=100]": ("regression", 1.05, "FAKE-0")}
