"""Variants that run a program, resolved. Their problems are in tests/data/suites/broken/programs."""

import pytest

from perfsvc.model import Kind
from perfsvc.suite import discover
from tests.unit.suite import benches

TIME = 'regex("(?P<time_s>.+)")'


@pytest.fixture
def resolved(tmp_path):
    def resolve(*variants, points="full"):
        return benches.resolved(tmp_path / "suite" / "loop", points, variants=f"[{', '.join(variants)}]")

    return resolve


def test_a_command_is_split_before_values_are_filled_in(resolved):
    params = 'params={"name": "a  b"}'
    specs = resolved(f'Variant("v", {params}, run=program("./bench -n {{n}} --name={{name}}", parse={TIME}))')
    assert [spec.steps[0].command for spec in specs] == [
        ("./bench", "-n", "256", "--name=a  b"),
        ("./bench", "-n", "1000", "--name=a  b"),
    ]


def test_a_command_may_be_a_list_and_hold_braces_and_formats(resolved):
    (spec,) = resolved(f'Variant("v", run=program(["./a bench", "{{{{{{n:04d}}}}}}"], parse={TIME}))', points="smoke")
    assert spec.steps[0].command == ("./a bench", "{0010}")


def test_parameters_make_variants_and_fill_every_text(resolved):
    variant = (
        'Variant("v", params={"T": ("x", "y"), "U": lambda n: 2 * n}, run=program("./{T}/bench", parse="nvbench", '
        'files="data-{U}", env={"LEVEL": "{T}{n}"}, result="{T}.json", pick={"benchmark": "{T}", "n": 3}))'
    )
    _, spec = resolved(variant, points="smoke")
    (step,) = spec.steps
    assert spec.case.variant == "v-Ty"
    assert (step.command, step.files) == (("./y/bench",), ("y/bench", "data-20"))
    assert (step.environment, step.result) == ((("LEVEL", "y10"),), "y.json")
    assert step.pick == (("benchmark", "y"), ("n", 3))


def test_a_program_has_its_own_kind_and_no_arrays(resolved):
    (spec,) = resolved(f'Variant("v", run=program("./bench", parse={TIME}))', points="smoke")
    assert (spec.kind, spec.buffers, spec.units) == (Kind.PROGRAM, (), ())


def test_files_are_found_from_the_folder_of_the_benchmark(resolved, tmp_path):
    (spec,) = resolved(
        f'Variant("v", run=program("../build/bench", parse={TIME}, build="make", files=["./a/../b", "../c"]))',
        points="smoke",
    )
    folder = tmp_path / "suite" / "loop"
    assert [file.path for file in spec.files] == [
        tmp_path / "suite" / "build" / "bench",
        folder / "b",
        tmp_path / "suite" / "c",
    ]
    assert [file.executable for file in spec.files] == [True, False, False]
    assert {(file.folder, file.build) for file in spec.files} == {(folder, "make")}
    assert spec.steps[0].files == ("../build/bench", "b", "../c")


@pytest.mark.parametrize("command", ["python3 x.py", "/usr/bin/python3 x.py"])
def test_a_program_of_the_machine_is_not_stored(resolved, command):
    (spec,) = resolved(f'Variant("v", run=program("{command}", parse={TIME}, files="x.py"))', points="smoke")
    assert [(file.path.name, file.executable) for file in spec.files] == [("x.py", False)]


def test_a_record_names_a_digest_for_each_file(resolved):
    (spec,) = resolved(f'Variant("v", run=program("./bench", parse={TIME}, files="x"))', points="smoke")
    assert spec.record(["d1", "d2"], "b").modules == ("d1", "d2")


def test_a_program_beside_the_benchmark_that_lacks_its_folder_gets_a_hint(tmp_path):
    variant = f'Variant("v", run=program("tool", parse={TIME}))'
    (tmp_path / "bench.py").write_text(benches.text_of(fields={"variants": f"[{variant}]"}))
    (problem,) = discover(tmp_path).problems
    assert problem.cure.endswith("if tool lies beside the bench.py, write ./tool")
