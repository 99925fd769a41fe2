"""The versions of the CUDA libraries that a library of a benchmark uses."""

import hashlib
import shutil
import subprocess

import pytest

from perfsvc.measure.worker.main import cuda_libraries
from perfsvc.model import Package

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="makes shared objects with gcc")


@pytest.fixture
def build(tmp_path):
    def built(*needed):
        (tmp_path / "a.c").write_text("int one;")
        for name in needed:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            command = ["gcc", "-shared", f"-Wl,-soname,{path.name}", "-nostdlib", "a.c", "-o", str(path)]
            subprocess.run(command, cwd=tmp_path, check=True)
        command = ["gcc", "-shared", "-nostdlib", "-Wl,--no-as-needed", "a.c", *needed, "-o", "own.so"]
        subprocess.run(command, cwd=tmp_path, check=True)
        return (tmp_path / "own.so").read_bytes()

    return built


def maps(tmp_path, *paths):
    file = tmp_path / "maps"
    lines = [f"7f0000000000-7f0000001000 r-xp 00000000 08:01 12 {tmp_path / path}\n" for path in paths]
    file.write_text("7fff00000000-7fff00001000 rw-p 00000000 00:00 0 [stack]\n" + "".join(2 * lines))
    return file


def test_a_library_of_a_toolkit_has_the_version_of_its_file(build, tmp_path):
    code = build("libcublas.so.13")
    (tmp_path / "libcublas.so.13").rename(tmp_path / "libcublas.so.13.0.2")
    python = cuda_libraries([code], maps(tmp_path, "libcublas.so.13.0.2", "libcudnn.so.9", "libc.so.6"))
    assert python.packages == (Package("libcublas", "13.0.2"),)


def test_a_library_of_a_python_package_has_the_version_of_the_package(build, tmp_path, monkeypatch):
    code = build("nvidia/cu13/lib/libcublas.so.13")
    record = "nvidia/cu13/lib/libcublas.so.13,sha256=x,9\n"
    (tmp_path / "nvidia_cublas-13.9.dist-info").mkdir()
    (tmp_path / "nvidia_cublas-13.9.dist-info" / "METADATA").write_text("Name: nvidia-cublas\nVersion: 13.9\n")
    (tmp_path / "nvidia_cublas-13.9.dist-info" / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(str(tmp_path))
    python = cuda_libraries([code], maps(tmp_path, "nvidia/cu13/lib/libcublas.so.13"))
    assert python.packages == (Package("nvidia-cublas", "13.9", hashlib.sha256(record.encode()).hexdigest()),)


def test_a_library_that_needs_no_cuda_library_has_none(build, tmp_path):
    assert cuda_libraries([build("libother.so.1")], maps(tmp_path, "libcublas.so.13")) is None
