"""The host's compilers as a toolchain: what decides a binary, and how refusals are reported."""

import shutil
import string
import sys
import tempfile
from pathlib import Path

import pytest

from perfsvc.build import sources
from perfsvc.build.cpu import host
from perfsvc.build.cpu.host import Compiler, HostToolchain, find_compiler, find_zig
from perfsvc.errors import CompileError, NoCompilerError, UnsupportedError
from perfsvc.installation import install_command
from perfsvc.model import Unit
from perfsvc.process import programs

DATA = Path(__file__).parents[3] / "data" / "cuda_on_cpu"


@pytest.fixture(scope="session", params=["found", pytest.param("zig", marks=pytest.mark.slow)])
def toolchain(request):
    return HostToolchain(find_compiler() if request.param == "found" else find_zig())


@pytest.fixture
def unit(tmp_path):
    """Writes a source and names it."""

    def written(text, *entries, options=(), defines=()):
        source = tmp_path / "kernel.cu"
        source.write_text(text)
        return Unit(source, entries, defines, options)

    return written


def key(toolchain, unit):
    files = toolchain.dependencies(unit)
    return toolchain.preimage(unit) + repr(sources.state_of(unit, files)).encode()


def refusal(toolchain, unit):
    with pytest.raises(CompileError) as caught:
        toolchain.compile(unit)
    return str(caught.value)


def test_equal_sources_in_two_folders_give_equal_bytes_without_a_path(toolchain, tmp_path):
    assert toolchain.target.startswith("cpu-")
    assert toolchain.version
    binaries = []
    for folder in (tmp_path / "one", tmp_path / "another" / "deeper"):
        shutil.copytree(DATA, folder)
        unit = Unit(folder / "faults.cu", ("asserts", "fine"), options=("-I", str(folder / "shared")))
        binaries.append((key(toolchain, unit), toolchain.compile(unit)))
    assert binaries[0] == binaries[1]
    for text in binaries[0]:
        assert str(tmp_path).encode() not in text
        assert tempfile.gettempdir().encode() not in text
    assert str(host.HEADER.parent).encode() not in binaries[0][1]
    assert b"faults.cu" in binaries[0][1]


def test_every_change_of_the_binary_changes_its_key(toolchain, tmp_path):
    shutil.copytree(DATA, tmp_path / "data")
    source = tmp_path / "data" / "blocks.cu"
    seen = {key(toolchain, Unit(source, ("visit",)))}
    seen.add(key(toolchain, Unit(source, ("visit", "transpose"))))
    seen.add(key(toolchain, Unit(source, ("visit",), (("TILE", 8),))))
    seen.add(key(toolchain, Unit(source, ("visit",), options=("-std=c++20",))))
    header = tmp_path / "data" / "shared" / "scale.cuh"
    header.write_text(header.read_text().replace("value * factor", "factor * value"))
    seen.add(key(toolchain, Unit(source, ("visit",))))
    assert len(seen) == 5


def test_nvcc_options_that_a_host_compiler_lacks_are_ignored_and_folders_are_searched(toolchain, unit, tmp_path):
    for folder, text in (("more", "#define FACTOR 3\n"), ("theirs", "#define SYSTEM 4\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.h").write_text(text)
    source = '#include "more.h"\n#include <theirs.h>\n'
    source += 'extern "C" __global__ void k(int* x) { *x = FACTOR + SYSTEM + OTHER + MORE; }\n'
    options = ("-O3", "--use_fast_math", "-lineinfo", "-I", "more", "-DOTHER=1", "--define-macro=MORE=2", "--std=c++14")
    assert toolchain.compile(unit(source, "k", options=(*options, "-isystem", "theirs")))


def test_parameters_may_have_names_that_our_header_uses(toolchain, unit):
    defines = tuple((letter, number) for number, letter in enumerate(string.ascii_uppercase))
    total = " + ".join(string.ascii_uppercase)
    source = f"""#include <cmath>
    template <typename Kind> __device__ Kind both(Kind a) {{ return __shfl_down_sync(~0u, a, 1) + min(a, Kind(2)); }}
    extern "C" __global__ void k(int* x) {{ x[0] = {total}; atomicAdd(x, both(x[1])); }}"""
    assert toolchain.compile(unit(source, "k", defines=defines))


def test_parameters_apply_to_every_file_of_the_user_and_override_options(toolchain, unit, tmp_path):
    (tmp_path / "first.h").write_text('static_assert(N == 2, "");\n#undef N\n#define N 3\n')
    source = (
        'static_assert(N == 3 && TWICE(2) == 4 && ONE == 1 && SUM(1, 2) == 3, "");\nextern "C" __global__ void k() {}\n'
    )
    options = ("-DN=1", "-DTWICE(x)=(2*(x))", "-DONE,GONE", "-UGONE", "-DSUM(a\\,b)=((a)+(b))", "-include", "first.h")
    assert toolchain.compile(unit(source, "k", options=options, defines=(("N", 2),)))


def test_assertions_are_on_unless_a_parameter_turns_them_off(toolchain, unit):
    source = '#ifdef INCLUDED\n#include <cassert>\n#endif\nextern "C" __global__ void k(int* x) { assert(*x == 7); }\n'
    for more in ((), (("INCLUDED", 1),)):
        assert b"*x == 7" in toolchain.compile(unit(source, "k", defines=more))
        assert b"*x == 7" not in toolchain.compile(unit(source, "k", defines=(("NDEBUG", 1), *more)))


def test_a_compiler_with_the_path_of_libstdcxx_finds_the_c_librarys_headers(toolchain, unit, tmp_path, monkeypatch):
    library = tmp_path / "libstdc++"
    library.mkdir()
    (library / "math.h").write_text(
        "#ifdef _GLIBCXX_INCLUDE_NEXT_C_HEADERS\n#include_next <math.h>\n"
        "#else\n#include <cmath>\nusing std::acosl;\n#endif\n"
    )
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(library))
    assert toolchain.compile(unit('extern "C" __global__ void go(float* x) { *x = sinf(*x); }'))


def test_the_error_of_an_invalid_macro_names_no_temporary_folder(toolchain, unit):
    message = refusal(toolchain, unit('extern "C" __global__ void k() {}\n', "k", options=("-D1st=2",)))
    assert "parameters:1:" in message
    assert tempfile.gettempdir() not in message


def test_zig_keeps_its_cache_in_the_build_cache(unit, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFSVC_CACHE", "mine")  # compilers run in the folder of the source
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    commands = []
    monkeypatch.setattr(programs, "run", lambda command, **_: commands.append(command) or programs.Finished(1, ""))
    refusal(HostToolchain(Compiler(("c++",), "c++ 1")), unit("", "k"))
    assert f"ZIG_GLOBAL_CACHE_DIR={tmp_path / 'mine' / 'zig'}" in commands[0]


def test_a_compiler_that_hangs_fails_its_unit(unit, monkeypatch):
    monkeypatch.setattr(programs, "LIMIT_S", 0.5)
    hung = HostToolchain(Compiler(("sh", "-c", "sleep 300"), "hung 1"))
    assert "kernel.cu: still compiling after 0.5 s" in refusal(hung, unit("", "k"))


def test_a_compile_error_has_file_and_line_without_paths(toolchain, unit, tmp_path):
    message = refusal(toolchain, unit('\nextern "C" __global__ void k(int* x) {\n  *x = nonsense;\n}\n', "k"))
    assert "kernel.cu does not compile:" in message
    assert "kernel.cu:3:" in message
    assert "nonsense" in message
    assert str(tmp_path) not in message
    assert tempfile.gettempdir() not in message


def test_an_error_in_a_header_names_the_header_and_a_missing_file_is_an_error(toolchain, unit, tmp_path):
    (tmp_path / "broken.cuh").write_text("\nint x = ;\n")
    assert "broken.cuh:2:" in refusal(toolchain, unit('#include "broken.cuh"\n'))
    assert "missing.cuh" in refusal(toolchain, unit('#include "missing.cuh"\n'))
    assert "there is no such file" in refusal(toolchain, Unit(Path("nowhere.cu"), ()))


def test_warnings_about_the_users_code_are_no_errors(toolchain, unit):
    source = 'extern "C" __global__ void k(int* x) { int unused; unsigned u = -1; if (u < 0) *x = 1; }'
    assert toolchain.compile(unit(source, "k", options=("-Werror",)))


def test_a_missing_entry_is_an_error_that_lists_the_existing_ones(toolchain, unit):
    source = """
    template <int N> __global__ void generic(int* x) { *x = N; }
    __global__ void mangled(int* x) { *x = 1; }
    extern "C" void no_kernel() {}
    extern "C" __global__ void __launch_bounds__(32, 2) one(int* x) { *x = 1; }
    extern "C" { __device__ int helper() { return 2; }  static __device__ int n;
    __launch_bounds__(64) __global__ void two(int* x) { *x = helper(); } }
    """
    message = refusal(toolchain, unit(source, "one", "generic"))
    assert (
        "kernel.cu has no kernel named generic; it has template <int N> generic(int* x); mangled(int* x); " in message
    )
    assert "kernel.cu has no kernel named no_kernel; it has " in refusal(toolchain, unit(source, "no_kernel"))
    assert toolchain.compile(unit(source, "one", "two", "mangled", "generic<3>"))


def test_code_that_a_cpu_cannot_run_is_unsupported(toolchain, unit):
    reasons = {
        '__device__ void f() { asm volatile("mov.u32 %0, %%laneid;" : "=r"(x)); }': "inline PTX",
        '__device__ int f() { int x; asm("mov.u32 %0, 1;" : "=r"(x)); return x; }': "inline PTX",
        "#include <mma.h>\n": "tensor cores",
        "#include <cooperative_groups.h>\n": "cooperative groups",
        "#include <cooperative_groups/reduce.h>\n": "cooperative_groups/reduce.h",
        "#include <cuda_fp16.h>\n": "half precision",
        "#include <cuda_bf16.h>\n": "bfloat16",
        "#include <cuda/pipeline>\n": "asynchronous copies",
        "#include <cuda/std/array>\n": "cuda/std/array",
        "#include <cub/cub.cuh>\n": "cub/cub.cuh",
        "#include <vector>\n": "the C++ standard library",
        "__global__ void k(); void f() { k<<<1, 1>>>(); }": "launches in the source",
    }
    for source, reason in reasons.items():
        with pytest.raises(UnsupportedError, match=r"^unsupported on cpu: ") as caught:
            toolchain.compile(unit(source))
        assert reason in caught.value.what


def test_guarded_gpu_code_is_ignored(toolchain, unit):
    source = """
    #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    #include <mma.h>
    __device__ int lane() { int x; asm("mov.u32 %0, %%laneid;" : "=r"(x)); return x; }
    #else
    // asm("in a comment") <<<
    __device__ int lane() { asm volatile("" ::: "memory"); return threadIdx.x % 32; }
    #endif
    extern "C" __global__ void k(int* x) { x[threadIdx.x] = lane(); printf("asm <<< %d", 1); }
    """
    assert toolchain.compile(unit(source, "k"))


def test_shared_arrays_are_bound_wherever_they_are_declared(toolchain, unit):
    source = """
    extern __shared__ float of_file[];
    namespace inner { extern volatile __shared__ int of_namespace[]; }
    template <typename T> __device__ T first() {
      extern __shared__ __align__(sizeof(T)) T of_template[];
      return of_template[0];
    }
    extern "C" __global__ void k(float* x) {
      extern __shared__ float4 quads[];
      extern __shared__ float rows[][33];
      __shared__ __align__(16) char bytes[64];
      static __shared__ int counter;
      bytes[0] = counter = 0;
      *x = of_file[0] + inner::of_namespace[0] + first<double>() + quads[0].x + rows[1][2] + bytes[0];
    }
    """
    assert toolchain.compile(unit(source, "k"))


def test_without_a_system_compiler_zig_is_used_and_without_zig_the_cure_is_the_extra(monkeypatch):
    assert find_compiler({"PATH": "/nowhere"}) == find_zig()
    monkeypatch.setattr(host, "find_zig", lambda: None)
    with pytest.raises(NoCompilerError) as caught:
        find_compiler({"PATH": "/nowhere"})
    assert caught.value.cure == install_command("cpu")


def test_cxx_is_used_or_refused():
    zig = find_zig()
    assert find_compiler({"CXX": " ".join(zig.command)}).command == zig.command
    with pytest.raises(NoCompilerError, match=r"\$CXX names /nowhere/c\+\+, which prints no version"):
        find_compiler({"CXX": "/nowhere/c++ -m64"})


def test_zig_is_recognised_by_any_word_of_its_command(monkeypatch):
    monkeypatch.setattr(host, "_version", lambda command: "clang version 22.1.8")
    commands = {
        "ccache c++": False,
        "distcc ccache g++ -m64": False,
        "/opt/zig/zig c++": True,
        "ccache zig c++": True,
        "python3 -m ziglang c++": True,
    }
    for command, zig in commands.items():
        compiler = find_compiler({"CXX": command})
        assert compiler.command == tuple(command.split())
        assert compiler.options == (("-mcpu=baseline",) if zig else ())


def test_a_compiler_that_fails_is_skipped(tmp_path):
    stub = tmp_path / "c++"
    stub.write_text(f"#!{sys.executable}\nraise SystemExit(1)\n")
    stub.chmod(0o755)
    assert find_compiler({"PATH": str(tmp_path)}) == find_zig()
