"""Programs that do well, and programs that do every kind of wrong."""

from perfsvc.suite import Benchmark, Variant, program, regex

TOOK = regex(r"took (?P<time_ms>[0-9.]+) ms")


def run(name, command, parse=TOOK, **fields):
    return Variant(name, run=program(command, parse=parse, **fields))


benchmark = Benchmark(
    axes={"n": (1000,)},
    smoke={"n": 7},
    variants=[
        run(
            "good",
            "./tool.py good {n}",
            regex(r"n=(?P<n>\d+) took (?P<time_ms>[0-9.]+) ms, peak (?P<peak_kb>\d+) kB"),
            metrics="peak_kb",
        ),
        run("spaces", "'../shared/a tool.sh' '../shared/the time.txt'", files="../shared/the time.txt"),
        run("machine", "python3 tool.py environment", files="tool.py", env={"LEVEL": "{n}"}),
        run("json", "./tool.py json --out=out.json BM_a/n:7 BM_a/n:8", "google-benchmark"),
        run("picked", "./tool.py json --out=out.json BM_a BM_b", "google-benchmark", pick={"benchmark": "BM_b"}),
        run("status", "./tool.py exit 7", exit_code=7),
        run("stdin", "./tool.py stdin"),
        run("built", "./built.sh", build="printf '#!/bin/sh\\necho took 4 ms\\n' > built.sh && chmod +x built.sh"),
        run("hangs", "./tool.py hang", limit_s=1),
        run("crashes", "./tool.py crash"),
        run("exits", "./tool.py exit 3"),
        run("nonsense", "./tool.py nonsense"),
        run("zero", "./tool.py zero"),
        run("huge", "./tool.py huge"),
        run("stops", "./tool.py stop", limit_s=1),
        run("kills_its_parent", "./tool.py parent"),
        run("leaves", "./tool.py left"),
        run("missing", "./no_such_program"),
        run("not_executable", "./not_executable.sh"),
        run("text", "./text"),
        run("no_tool", "no-such-program-here tool.py", files="tool.py"),
        run("unbuilt", "./made", build="echo no rule to make target >&2; exit 2"),
        run("broken_json", "./tool.py nonsense", "nvbench"),
        run("several", "./tool.py json --out=out.json BM_a BM_b", "google-benchmark"),
        run("other_point", "./tool.py json --out=out.json BM_a/n:8", "google-benchmark"),
        run("no_file", "./tool.py good 7", result="out.json"),
        run("no_metric", "./tool.py json --out=out.json BM_a", "google-benchmark", metrics="bytes"),
    ],
)
