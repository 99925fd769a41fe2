"""Nights of Python variants on the CPU device: what got slower is measured again in A/B pairs, found and reported."""

import pytest

SETTINGS = """
suite = "suite"

[run]
devices = ["cpu"]
replicas = 4

[confirm]
budget = "60s"

[dashboard]
enabled = false

[notify]
targets = { team = "TEAM_URL" }
"""
BENCH = '''"""Twice a vector."""

import numpy as np
IMPORTS

from perfsvc.suite import Benchmark, Tolerance, Variant, output

REPEAT = 50


def inputs(rng):
    return {"x": rng.random(20_000, dtype="float32")}


def double(arrays, stream):
    for _ in range(REPEAT):
        BODY


def other(arrays, stream):
    arrays["y"][:] = arrays["x"]
    arrays["y"][:] *= 2


benchmark = Benchmark(
    inputs=inputs,
    outputs={"y": output("float32", 20_000)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-6),
    variants=[Variant("double", KIND run=double)],
)
'''
CASE = "twice/double"
PLAIN = 'np.multiply(arrays["x"], 2, out=arrays["y"])'


class Nights:
    """Nights of one Python variant, and a folder on Python's path.

    Args:
        run: runs a command, in this process or in one of its own, which finds what lies in that folder.
    """

    def __init__(self, perfsvc, receiver, run):
        self.perfsvc, self.receiver, self.run = perfsvc, receiver, run
        self.bench = perfsvc.folder / "suite" / "twice" / "bench.py"
        self.bench.parent.mkdir(parents=True)
        self.path = perfsvc.folder / "path"
        self.path.mkdir()
        (perfsvc.folder / "perfsvc.toml").write_text(SETTINGS)
        perfsvc.environment |= {"TEAM_URL": receiver.address(), "PYTHONPATH": str(self.path)}
        perfsvc.environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a file may change twice in a second

    def write(self, imports="", body=PLAIN, kind="", repeat=50):
        text = (
            BENCH.replace("REPEAT = 50", f"REPEAT = {repeat}")
            .replace("IMPORTS", imports)
            .replace("BODY", body)
            .replace("KIND", kind)
        )
        self.bench.write_text(text)

    def change(self, old, new):
        text = self.bench.read_text()
        assert old in text
        self.bench.write_text(text.replace(old, new))

    def install(self, version, repeat):
        """Install a package that works as often as needed."""
        module = self.path / "twofold.py"
        module.write_text(
            f"import numpy\n\ndef work(x, y):\n    for _ in range({repeat}):\n        numpy.multiply(x, 2, out=y)\n"
        )
        (old,) = [*self.path.glob("*.dist-info")] or [None]
        info = self.path / f"twofold-{version}.dist-info"
        if old is None:
            info.mkdir()
        else:
            old.rename(info)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: twofold\nVersion: {version}\n")
        (info / "RECORD").write_text(f"twofold.py,sha256={version},1\ntwofold-{version}.dist-info/METADATA,,\n")

    def __call__(self, code):
        """Run a night; return the messages that it sent."""
        before = len(self.receiver.received)
        self.run("nightly", code=code)
        return [request.json for request in self.receiver.received[before:]]

    def findings(self):
        return self.perfsvc.rows("select cause, root_cause, state from findings order by id")

    def confirmations(self):
        return self.perfsvc.rows("select cause, reason, same_code from confirmations order by id")


@pytest.fixture
def nights(perfsvc, receiver):
    return Nights(perfsvc, receiver, perfsvc)


@pytest.fixture
def installed(perfsvc, receiver):
    """Nights in processes of their own, whose variants import modules of the folder on Python's path."""
    return Nights(perfsvc, receiver, perfsvc.process)


def test_a_python_variant_that_gets_slower_is_confirmed_in_pairs_and_reported_that_night(nights):
    nights.write()
    assert nights(0) == []
    nights.change("REPEAT = 50", "REPEAT = 300")
    (message,) = nights(1)
    assert CASE in message["title"]
    assert "kernel" in message["message"]
    ((cause, reason, same_code),) = nights.confirmations()
    assert (cause, same_code) == ("kernel", 0)
    assert "measured in A/B pairs, its code is" in reason
    assert [(cause, state) for cause, _, state in nights.findings()] == [("kernel", "open")]
    assert nights(1) == []  # it stands, and is reported once
    nights.change("REPEAT = 300", "REPEAT = 50")
    (message,) = nights(0)
    assert message["title"] == "twice/double at the old level again"


def test_comments_and_other_functions_of_the_file_are_the_same_code(nights):
    nights.write()
    nights(0)
    nights.change("def double(arrays, stream):", 'def double(arrays, stream):  # faster\n    """Double it."""\n')
    nights.change('arrays["y"][:] *= 2', 'arrays["y"][:] *= 2.0')
    nights(None)
    nights.run("confirm", CASE, "--device", "cpu", code=0)
    assert {(cause in {"noise", "environment"}, same) for cause, _, same in nights.confirmations()} == {(True, 1)}


def test_a_package_that_got_slower_is_the_toolchain(installed):
    installed.write(imports="import twofold", body='twofold.work(arrays["x"], arrays["y"])', repeat=1)
    installed.install("3.4.0", repeat=50)
    assert installed(0) == []
    installed.install("3.5.0", repeat=300)
    (message,) = installed(1)
    assert "twofold 3.4.0 → 3.5.0" in message["message"]
    assert installed.findings() == [("toolchain", "twofold 3.4.0 → 3.5.0", "open")]
    ((cause, reason, same_code),) = installed.confirmations()
    assert (cause, same_code) == ("toolchain", 0)
    assert "what it ran with then is gone, so the two cannot be measured in A/B pairs" in reason
    assert installed(1) == []


def test_a_module_of_the_author_is_code_and_is_measured_as_it_was(installed):
    installed.write(imports="import helpers", body='helpers.work(arrays["x"], arrays["y"])', repeat=1)
    work = "import numpy\n\ndef work(x, y):\n    for _ in range({}):\n        numpy.multiply(x, 2, out=y)\n"
    (installed.path / "helpers.py").write_text(work.format(50))
    assert installed(0) == []
    (installed.path / "helpers.py").write_text(work.format(300))
    (message,) = installed(1)
    assert CASE in message["title"]
    ((cause, reason, same_code),) = installed.confirmations()
    assert (cause, same_code) == ("kernel", 0), reason
    assert installed.perfsvc.rows("select count(*) from binary_files where role = 'python'") >= [(2,)]
