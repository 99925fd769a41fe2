"""Any variant of the built-in suite at any point, measured in this process as a worker measures it."""

import gc
from functools import cache
from types import SimpleNamespace

import pytest

from perfsvc import build, installation
from perfsvc.errors import CaseError, UnsupportedError
from perfsvc.measure.protocol.messages import CaseJob, Sampling, without_samples
from perfsvc.measure.protocol.shared_arrays import of_buffers
from perfsvc.measure.worker.main import measure
from perfsvc.measure.worker.memory import DeviceArrayCache
from perfsvc.model import CacheState, Call, Status
from perfsvc.process.shared_memory import ArrayLayout
from perfsvc.selection import parse
from perfsvc.suite import discover, unmet, wrong_gpus
from perfsvc.suite.arrays import Inputs, make_arrays, make_fresh
from perfsvc.suite.benchfile import load
from perfsvc.suite.points import axes_of, expansions_of
from perfsvc.suite.resolving import BenchmarkPoint, case_of, resolve, worth_running


class LoadedSuite:
    """The built-in suite with its benchmark files loaded in this process, so that tests can call their functions."""

    def __init__(self, suite):
        self.benchmarks = tuple(load(bench.path) for bench in suite.benchmarks)
        self.resolve = suite.resolve
        self.cases = tuple(
            SimpleNamespace(
                case=listed.case,
                points=listed.points,
                file=self.benchmark(listed.case.benchmark),
                expansion=self._expansion(listed.case),
            )
            for listed in suite.cases
        )

    def benchmark(self, name):
        return next(file for file in self.benchmarks if file.name == name)

    def _expansion(self, case):
        expansions = expansions_of(self.benchmark(case.benchmark).benchmark)
        return next(expansion for expansion in expansions if expansion.name == case.variant)


SUITE = LoadedSuite(discover(installation.data_folder("kernels")))

ONCE = Sampling(samples=1, seconds=0.0, least=1, evict=0.0)
"""Between the two checks, which run the steps once or twice each."""


KEPT_BYTES = 1 << 30
"""Of inputs and references in the memory of a GPU, which finds the errors there as well."""


class Kernels:
    """The suite, a device, and the binaries made for it so far."""

    def __init__(self, device):
        device.load = cache(device.load)  # thousands of cases would else leave thousands of libraries in this process
        self._device = device
        self._vault = DeviceArrayCache(device, KEPT_BYTES if device.queue_depth else 0)
        self._toolchain = build.toolchain_for(device.info.target)
        self._cache = build.Cache()
        self._binaries = {}

    def check(self, select, *, python=True, **point):
        """The measurement of each selected variant at a point, skipped ones included; fails where one does."""
        found = self.measure(select, python=python, **point)
        bad = [result for result in found.values() if result.status not in {Status.OK, Status.SKIPPED}]
        assert not bad, "\n".join(f"{result.case.id} {result.status}: {result.reason}" for result in bad)
        return found

    def measure(self, select, *, python=True, **point):
        """The measurement of each selected variant at a point, by the variant's name, whatever became of it.

        Without ``python``, those that have steps in Python are left out.
        """
        glob = parse(select)
        (file,) = (file for file in SUITE.benchmarks if glob.benchmark.fullmatch(file.name))
        place = tuple((axis, point.pop(axis)) for axis in axes_of(file.benchmark))
        assert not point, f"{file.name} has no axes {', '.join(point)}"
        expansions = {
            listed.case.variant: listed.expansion
            for listed in SUITE.cases
            if listed.file is file and glob.variant.fullmatch(listed.case.variant)
        }
        assert expansions, f"{select} selects nothing"
        shapes = Inputs().shapes([(file, place)])[file, place]
        specs, found = {}, {}
        for name, expansion in expansions.items():
            if worth_running(expansion, place):
                specs[name] = resolve(expansion, BenchmarkPoint(file, place, shapes))[0]
            else:
                case = case_of(file, expansion, place)
                found[name] = self._without_samples(case, UnsupportedError("not worth running at this point"))
        return found | self._measure({name: spec for name, spec in specs.items() if python or not _calls(spec)})

    def _measure(self, specs):
        able = [spec for spec in specs.values() if not self._unmet(spec)]
        self._build({unit for spec in able for unit in spec.units})
        arrays = {name: _arrays(spec) for name, spec in {spec.arrays: spec for spec in able}.items()}
        return {name: self._measure_one(spec, arrays) for name, spec in specs.items()}

    def _build(self, units):
        missing = units - self._binaries.keys()
        self._binaries |= build.compile_all(missing, self._toolchain, self._cache)

    def _measure_one(self, spec, arrays):
        if reason := self._unmet(spec):
            return self._without_samples(spec.case, UnsupportedError(reason))
        modules = [self._binaries[unit] for unit in spec.units]
        for module in modules:
            if isinstance(module, CaseError):
                return self._without_samples(spec.case, module)
        job = CaseJob(
            record=spec.record([module.digest for module in modules], ""),
            replica=0,
            cache=CacheState.WARM,
            tolerance=spec.tolerance,
            sampling=ONCE,
            array_name=spec.arrays,
            arrays=ArrayLayout(),
            bench=spec.bench_text if _calls(spec) else "",
        )
        codes = [module.code for module in modules]
        measured = measure(self._device, job, codes, _held(arrays[spec.arrays], spec), self._vault)
        if _calls(spec):
            gc.freeze()  # each case collects garbage, and what a library brought is none
        if not measured.usable:
            pytest.exit(f"{spec.case.id} left {self._device.info.spec} unusable: {measured.measurement.reason}", 1)
        return measured.measurement

    def _unmet(self, spec):
        """Why the device cannot run a case; the CPU device stands in for any number of GPUs."""
        info = self._device.info
        return unmet(spec, info) or ("" if info.kind == "cpu" else wrong_gpus(spec, info))

    def _without_samples(self, case, error):
        return without_samples(case, self._device.info.uuid, 0, CacheState.WARM, error)


def _held(arrays, spec):
    """The arrays by the names of the buffers that hold them, as a worker maps them."""
    return SimpleNamespace(**{name: of_buffers(its, spec.buffers) for name, its in vars(arrays).items()})


def _calls(spec):
    return any(isinstance(step, Call) for step in spec.steps)


def _arrays(spec):
    """What ``perfsvc.measure.protocol.shared_arrays.MappedArrays`` holds, in memory of this process."""
    inputs, expected = make_arrays(spec)
    fresh_inputs, fresh_expected = make_fresh(spec, lambda: inputs)
    for array in (*inputs.values(), *expected.values(), *fresh_inputs.values(), *fresh_expected.values()):
        array.flags.writeable = False
    return SimpleNamespace(inputs=inputs, expected=expected, fresh_inputs=fresh_inputs, fresh_expected=fresh_expected)
