"""Nights of Python variants on the CPU device: what got slower is measured again in A/B pairs, found and reported."""

import shutil

import pytest

pytestmark = pytest.mark.slow  # whole nights

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
    assert "the packages of that time are gone, so the two cannot be measured in A/B pairs" in reason
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


LATENCY = """pass
    lowest = 1.0
    for _ in range(9):
        started = time.process_time()  # what other processes take does not count
        for _ in range(2 * 50):
            np.multiply(arrays["x"], 2, out=arrays["y"])
        lowest = min(lowest, time.process_time() - started)
    return {"latency_s": lowest}"""


def test_a_variant_that_measures_itself_is_measured_again(nights):
    nights.write(imports="import time", body=LATENCY, kind='kind="host",')
    assert nights(0) == []
    nights.change("2 * 50", "20 * 50")
    (message,) = nights(1)
    assert "latency_s" in message["message"]
    assert [cause for cause, *_ in nights.confirmations()] == ["kernel"]


def test_a_package_that_changed_as_the_gpu_got_slower_is_not_blamed(installed):
    installed.write(imports="import twofold", body='twofold.work(arrays["x"], arrays["y"])', repeat=1)
    installed.install("3.4.0", repeat=1)
    bench = installed.perfsvc.own("scale") / "scale" / "bench.py"
    bench.write_text(bench.read_text().replace("variants=[", "variants=[*(variant(f'v{i}') for i in range(5)),"))
    shutil.copytree(bench.parent, installed.bench.parents[1] / "scale")
    settings = SETTINGS.replace('"cpu"', f'"fake:{installed.perfsvc.script.name}"')
    (installed.perfsvc.folder / "perfsvc.toml").write_text(settings)
    installed.perfsvc.play({"*": {"seconds": 1e-4}})
    assert installed(0) == []
    installed.install("3.5.0", repeat=1)
    installed.perfsvc.play({"*": {"seconds": 1.05e-4}})
    (message,) = installed(None)
    assert "environment" in message["message"]
    ((cause, reason, _),) = installed.confirmations()
    assert cause == "unconfirmed"
    assert "so it may be twofold 3.4.0 → 3.5.0, or what moved other cases of the GPU" in reason
    assert [cause for cause, *_ in installed.findings()] == ["environment"]


LAUNCHED = '''"""Twice a vector, which every block computes as a whole."""

from perfsvc.suite import Benchmark, Tolerance, Variant, output

N = 20_000

benchmark = Benchmark(
    inputs=lambda rng: {"x": rng.random(N, dtype="float32")},
    outputs={"y": output("float32", N)},
    reference=lambda x: 2 * x,
    tolerance=Tolerance(max=1e-6, mean=1e-6),
    variants=[Variant("double", source="twice.cu", entry="twice", grid=4, block=32, args=("y", "x"))],
)
'''
KERNEL = """
extern "C" __global__ void twice(float *y, const float *x) {
    for (int i = threadIdx.x; i < 20000; i += blockDim.x) y[i] = 2 * x[i];
}
"""


def test_a_kernel_that_is_launched_with_another_grid_is_no_other_kernel(nights):
    nights.bench.write_text(LAUNCHED)
    nights.bench.with_name("twice.cu").write_text(KERNEL)
    assert nights(0) == []
    nights.change("grid=4", "grid=40")
    (message,) = nights(1)
    assert "launch" in message["message"]
    ((cause, reason, same_code),) = nights.confirmations()
    assert (cause, same_code) == ("launch", 0)
    assert "only the options of its launches differ: grid 4 → 40" in reason
    assert [cause for cause, *_ in nights.findings()] == ["launch"]
