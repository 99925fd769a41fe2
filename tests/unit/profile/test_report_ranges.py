"""Reports of a profiling session: each launch is found by the name of its NVTX range."""

import struct
from types import SimpleNamespace

import pytest

from perfsvc.errors import ProfileError, ReportError
from perfsvc.model import Profile
from perfsvc.profile import reports
from perfsvc.profile.explain import RULES
from perfsvc.profile.metrics import METRICS, SECTIONS

LENGTH = struct.Struct("<I")
LEFT, RIGHT = "scale/a[n=8] of run 1", "scale/a[n=8] of run 2"


class Domain:
    def __init__(self, name, *ranges):
        self._name, self._ranges = name, ranges

    def name(self):
        return self._name

    def push_pop_ranges(self):
        return self._ranges


class Action:
    """A launch as ``ncu_report`` has it: a kernel with one metric, and the NVTX ranges around it."""

    def __init__(self, kernel, seconds, *domains, metrics=("gpu__time_duration.sum",)):
        self._kernel, self._seconds, self._domains, self._metrics = kernel, seconds, domains, metrics

    def name(self, base=None):
        return f"_Z{self._kernel}" if base == "mangled" else self._kernel

    def metric_names(self):
        return self._metrics

    def metric_by_name(self, name):
        return SimpleNamespace(value=lambda: self._seconds, unit=lambda: "second")

    def rule_results_as_dicts(self):
        return []

    def nvtx_state(self):
        if not self._domains:
            return None
        return SimpleNamespace(domains=lambda: range(len(self._domains)), domain_by_id=lambda at: self._domains[at])


class Library:
    """``ncu_report`` with a report in memory."""

    IAction = SimpleNamespace(NameBase_FUNCTION="function", NameBase_DEMANGLED="demangled", NameBase_MANGLED="mangled")

    def __init__(self, *ranges):
        self._ranges = ranges

    def load_report(self, path):
        return SimpleNamespace(num_ranges=lambda: len(self._ranges), range_by_idx=self._range)

    def _range(self, at):
        actions = self._ranges[at]
        return SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=lambda number: actions[number])


def ours(name):
    return Domain("perfsvc", "scale/a[n=8]", "measure", name)


@pytest.fixture
def read(monkeypatch, tmp_path):
    """Return a function that reads ranges of a report with some launches, grouped by ncu's own ranges."""
    path = tmp_path / "joint.ncu-rep"
    path.write_bytes(b"NVR\0" + LENGTH.pack(0))

    def of(kernels, *ranges):
        monkeypatch.setattr(reports, "import_module", lambda _: Library(*ranges))
        return reports.read_ranges(path, kernels)

    return of


def test_each_launch_is_found_by_the_name_of_its_range_wherever_it_is(read):
    launches = [
        Action("before", 1.0, ours(LEFT)),
        Action("other", 5.0, Domain("torch", LEFT), Domain("perfsvc", "another case of run 1")),
        Action("after", 2.0, Domain("<default domain>"), ours(RIGHT)),
    ]
    for grouped in ([launches], [launches[:1], [], launches[1:]], [launches[::-1]]):
        found = read({RIGHT: "after", LEFT: "before"}, *grouped)
        assert {name: (profile.kernel, profile.metrics["duration_s"]) for name, profile in found.items()} == {
            RIGHT: ("after", 2.0),
            LEFT: ("before", 1.0),
        }


def test_a_python_function_is_profiled_at_the_longest_of_its_launches(read):
    launches = [Action("fill", 1.0, ours(LEFT)), Action("softmax", 3.0, ours(LEFT)), Action("copy", 2.0, ours(LEFT))]
    (profile,) = read({LEFT: ""}, launches).values()
    assert (profile.kernel, profile.metrics["duration_s"]) == ("softmax", 3.0)
    launched = [(kernel.name, kernel.duration_s) for kernel in profile.kernels]
    assert launched == [("fill", 1.0), ("softmax", 3.0), ("copy", 2.0)]
    (alone,) = read({LEFT: ""}, launches[:1]).values()
    assert (alone.kernel, alone.kernels) == ("fill", ())
    (missing,) = read({LEFT: ""}, []).values()
    assert "saw no launch" in missing.what
    (profile,) = read({LEFT: "_Zbefore"}, [Action("before", 1.0, ours(LEFT))]).values()
    assert profile.kernel == "before"


def test_a_launch_that_is_missing_or_another_costs_only_its_own_profile(read):
    for actions, message in [
        ([], "saw no launch in the range scale"),
        ([Action("before", 1.0)], "saw no launch in the range scale"),
        ([Action("before", 1.0, ours(LEFT)), Action("before", 1.0, ours(LEFT))], "saw 2 launches in the range scale"),
        ([Action("elsewhere", 1.0, ours(LEFT))], "has a launch of the kernel elsewhere, not of before"),
        ([Action("before", 1.0, ours(LEFT), metrics=())], "holds a launch without a metric"),
    ]:
        found = read({LEFT: "before", RIGHT: "after"}, [*actions, Action("after", 2.0, ours(RIGHT))])
        assert isinstance(found[LEFT], ReportError), (actions, message)
        assert message in found[LEFT].what, (actions, message)
        assert found[LEFT].cure, (actions, message)
        assert found[RIGHT].kernel == "after", (actions, message)


@pytest.mark.slow
def test_a_real_report_is_read_by_its_range_here_and_in_another_process(ncu_report, elsewhere):
    report = ncu_report("transpose-tiled")
    kernels = {"measure": "transpose_tiled", LEFT: "transpose_tiled"}
    here, there = elsewhere(reports.read_ranges, report, kernels), reports.read_ranges_isolated(report, kernels)
    assert here["measure"] == there["measure"] == elsewhere(reports.read, report)
    assert isinstance(there["measure"], Profile)
    assert (there[LEFT].what, there[LEFT].cure) == (here[LEFT].what, here[LEFT].cure)


def test_a_damaged_report_is_an_error_of_the_whole_report(ncu_report, tmp_path):
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(ncu_report("transpose-tiled").read_bytes()[:1000])
    with pytest.raises(ReportError, match="is not a whole report"):
        reports.read_ranges_isolated(cut, {LEFT: "before"})


def test_the_time_limit_grows_with_the_number_of_ranges(ncu_report, monkeypatch):
    limits = []

    def run(*_, limit_s, **__):
        limits.append(limit_s)
        return SimpleNamespace(code=1, timed_out=True)

    monkeypatch.setattr(reports.programs, "run", run)
    for kernels in ({LEFT: "k"}, dict.fromkeys(map(str, range(200)), "k")):
        with pytest.raises(ProfileError, match="did not end within"):
            reports.read_ranges_isolated(ncu_report("transpose-tiled"), kernels)
    assert limits == [61.0, 260.0]


@pytest.mark.slow  # NVIDIA's library keeps 200 MB of the process
def test_each_section_that_is_collected_has_a_metric_or_a_rule_that_is_read(ncu_report):
    library = pytest.importorskip("ncu_report")
    context = library.load_report(str(ncu_report("transpose-tiled")))
    action = context.range_by_idx(0).action_by_idx(0)
    sections = {section.identifier(): section for section in action.sections()}
    read = {source for metric in METRICS for source in metric.sources}
    rules = {rule for names in RULES.values() for rule in names}

    def is_read(section):
        metrics = {metric.name() for metric in (*section.header_metrics(), *section.body_metrics())}
        return bool(metrics & read or {rule.rule_identifier() for rule in section.rules()} & rules)

    unread = {name for name in SECTIONS if not is_read(sections[name])}
    assert unread <= {"SpeedOfLight_RooflineChart"}  # the roofline reads its operations
    assert not is_read(sections["SchedulerStats"])
