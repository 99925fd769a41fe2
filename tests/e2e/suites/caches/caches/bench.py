"""One variant that is measured cold and warm, one warm alone, and one as usual."""

from perfsvc.suite import Benchmark, Tolerance, Variant, Work, output


def variant(name, **settings):
    return Variant(name, source="caches.cu", entry="fill", grid=1, block=1, args=("out",), **settings)


benchmark = Benchmark(
    axes={"n": (4,)},
    smoke={"n": 4},
    outputs={"out": output("float32", lambda n: n)},
    reference=lambda n: [1.0] * n,
    tolerance=Tolerance(max=0, mean=0),
    work=lambda n: Work(written_bytes=4 * n),
    variants=[variant("both", cache="both"), variant("hot", cache="warm"), variant("usual")],
)
