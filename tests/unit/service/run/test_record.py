from perfsvc.build import Cache, compile_all
from perfsvc.build.toolchain import FakeToolchain
from perfsvc.service.run.record import _sources
from perfsvc.suite import Selection, discover

BENCH = """
from perfsvc.suite import *
benchmark = Benchmark(
    axes={"n": (8,)}, smoke={"n": 8},
    outputs={"y": output("float32", 1)}, reference=lambda: 1.0, tolerance=Tolerance(0, 0),
    variants=[Variant("v", steps=[
        launch(source="one/k.cu", entry="k", grid=1, block=1, args=["y"]),
        launch(source="two/k.cu", entry="k", grid=1, block=1, args=["y"]),
    ])])
"""


def test_sources_of_one_name_in_two_folders_are_both_kept_with_their_headers(tmp_path):
    (tmp_path / "bench.py").write_text(BENCH)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "k.cu").write_text(f'#include "../h.cuh"\nint {folder};\n')
    (tmp_path / "h.cuh").write_text("int shared;\n")
    (spec,) = discover(tmp_path).resolve(Selection(), "smoke")[0]
    modules = compile_all(spec.units, FakeToolchain(), Cache(tmp_path / "cache"))
    for path in tmp_path.rglob("*.cu*"):
        path.write_text("edited while the run was measuring\n")
    kept = _sources(spec, tuple(modules.values()))
    assert {name: text.decode() for name, text in kept.items()} == {
        "one/k.cu": '#include "../h.cuh"\nint one;\n',
        "two/k.cu": '#include "../h.cuh"\nint two;\n',
        "h.cuh": "int shared;\n",
    }
