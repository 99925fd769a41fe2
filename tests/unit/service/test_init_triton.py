"""A bench.py for the Triton kernels of a file, which is read and not run."""

import pytest

from perfsvc.errors import UsageError
from perfsvc.service.init_triton import read, write
from perfsvc.suite import Selection, discover

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
