"""The bench.py of a benchmark without problems, which tests change in a field or two."""

from perfsvc.suite import Selection, discover

VARIANT = """Variant(
    "plain",
    source="../scale.cu", entry="scale", grid=lambda n: ceil_div(n, 64), block=64, args=("y", "x", "n"),
)"""
RIGHT = {
    "axes": '{"n": (256, 1000)}',
    "smoke": '{"n": 10}',
    "inputs": "inputs",
    "outputs": '{"y": output("float64", lambda n: n)}',
    "reference": "lambda x: 2 * x",
    "tolerance": "Tolerance(max=1e-6, mean=1e-7)",
    "variants": f"[{VARIANT}]",
}
"""The fields of a benchmark without problems."""


def text_of(problem="", fields=()):
    """Return the bench.py of a benchmark that differs in some fields from one without problems."""
    first = ["from perfsvc.suite import *", "def inputs(rng, n):", '    return {"x": rng.random(n)}']
    given = [f"{name}={value}\n," for name, value in (RIGHT | dict(fields)).items() if value]
    called = "benchmark = Benchmark(" + f"  # problem: {problem}" * bool(problem)
    return "\n".join([*first, called, *given, ")\n"])


def resolved(folder, points="full", **fields):
    """Write a benchmark that differs in some fields into a folder, and return its resolved cases."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.py").write_text(text_of(fields=fields))
    suite = discover(folder)
    assert [str(problem) for problem in suite.problems] == []
    return suite.resolve(Selection(), points)[0]
