"""What a new user trips over: each says what is wrong and how to go on."""

import getpass

import pytest

USUAL = {"*": {"seconds": 1e-4}}


def configure(perfsvc, text):
    perfsvc.own("scale")
    (perfsvc.folder / "perfsvc.toml").write_text(text)


@pytest.mark.quick
def test_doctor_names_a_heartbeat_without_a_url_and_goes_on(perfsvc):
    configure(perfsvc, 'suite = "scale"\n\n[nightly]\nheartbeat = "PERFSVC_TEST_BEAT"\n')
    (row,) = [row for row in perfsvc("doctor", "--format", "json").json if row["check"] == "heartbeat"]
    assert (row["ok"], row["cure"]) == (None, "set PERFSVC_TEST_BEAT where nights begin")


def test_a_threshold_of_one_needs_its_unit(perfsvc):
    perfsvc.play(USUAL)
    refused = perfsvc.fake("--threshold", "1", code=2)
    assert "'1' has no unit, and would be 100%; write 1% or 0.01" in refused.err
    rule = '[[thresholds]]\ncases = "scale"\nchange = {}\n'
    configure(perfsvc, rule.format("1"))
    refused = perfsvc("config", "show", code=2).err
    assert "perfsvc.toml:3" in refused
    assert "'1' has no unit" in refused
    (perfsvc.folder / "perfsvc.toml").write_text(rule.format('"150%"'))
    assert "150%" in perfsvc("config", "show", code=0).out


@pytest.fixture
def measured(perfsvc):
    perfsvc.play(USUAL)
    perfsvc.fake("--replicas", "1", "--points", "full", code=0)
    return perfsvc


def test_a_glob_or_a_part_names_a_case_and_other_names_are_refused_with_the_nearest(measured):
    for text in ("scale/beta[n=4000]", "*/beta[n=4*]", "beta[n=4000", "ta[n=4"):
        assert measured("show", text, code=0).out.startswith("scale/beta[n=4000] on Fake GPU")
    refused = measured("show", "scale/beta", code=2).err
    assert "'scale/beta' stands for 2 cases" in refused
    assert "    scale/beta[n=1000]\n    scale/beta[n=4000]" in refused
    assert "stands for 3 cases" in measured("show", "n=4000", code=2).err
    refused = measured("show", "scale/betta", code=2).err
    assert "scale/betta was never measured" in refused
    assert "did you mean scale/beta[n=" in refused
    measured.environment["COLUMNS"] = "60"
    assert "too narrow for spread, % of peak, max error" in " ".join(measured("report", code=0).out.split())


def test_a_user_without_a_passwd_entry_pins_a_baseline(measured, monkeypatch):
    def nameless():
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)
    unpinned = measured("baseline", "show", code=0).out
    assert "its last accepted level and later runs of the same code" in unpinned
    measured("baseline", "set", "1", code=0)
    pins = measured("baseline", "show", "--format", "json", code=0).json
    assert {pin["set_by"].split()[0] for pin in pins} == {"user"}


def test_float64_for_a_float_parameter_names_both_types(perfsvc):
    suite = perfsvc.own("scale")
    bench = suite / "scale" / "bench.py"
    bench.write_text(bench.read_text().replace("rng.standard_normal(n, dtype=np.float32)", "rng.standard_normal(n)"))
    ended = perfsvc("run", "--device", "cpu", "--suite", suite, code=4)
    said = " ".join(ended.out.split())
    assert "'a' is float64, but the kernel 'scale' takes it as float32" in said
    assert "astype(np.float32)" in said
