"""Where the kernel of a case is in the sources of a revision."""

from types import SimpleNamespace

import pytest

from perfsvc.model import Call, Launch, Memset, PackageCall, ProgramFile, RunProgram, Unit
from perfsvc.report.review import SourceLocation
from perfsvc.service.interleaved.compare import source_location


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.cu").write_text('#include <x>\n\nextern "C" __global__ void scale(int n) {}\n')
    (tmp_path / "k" / "t.py").write_text("x = 1\n\n\n@jit\ndef scale(n): ...\n")
    (tmp_path / "k" / "bench.py").write_text("\ndef scale(out): ...\n")
    return tmp_path


def located(tree, *steps, parts=()):
    spec = SimpleNamespace(steps=(Memset("out"), *steps), parts=parts, bench=tree / "k" / "bench.py")
    return source_location(spec, tree)


def test_a_case_is_where_its_kernel_its_function_or_its_benchmark_file_is(tree):
    unit = (Unit(tree / "k" / "a.cu", ("scale",)),)
    assert located(tree, Launch(0, "scale", (1, 1, 1), (1, 1, 1), ()), parts=unit) == SourceLocation("k/a.cu", 3)
    assert located(tree, Call("launch", module=0), parts=unit) == SourceLocation("k/a.cu", 3)  # it gets a binary
    call = Call("scale", module=0, package=PackageCall("triton", file="t.py"))
    assert located(tree, call, parts=(Unit(tree / "k" / "t.py", ()),)) == SourceLocation("k/t.py", 5)
    assert located(tree, Call("scale")) == SourceLocation("k/bench.py", 2)
    program, file = RunProgram(("./bench",), ("bench",), "nvbench"), ProgramFile(tree / "k" / "bench", tree / "k")
    assert located(tree, program, parts=(file,)) == SourceLocation("k/bench.py", 1)


def test_a_source_outside_the_repository_has_no_location(tree, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "a.cu"
    outside.write_text("void scale(int n) {}\n")
    (tree / "k" / "link.cu").symlink_to(outside)
    launch = Launch(0, "scale", (1, 1, 1), (1, 1, 1), ())
    for path in (outside, tree / "k" / "link.cu"):
        assert located(tree, launch, parts=(Unit(path, ("scale",)),)).path == ""
