"""What nights expect: what was there, what is missing, and what is forgotten."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perfsvc.errors import NoDeviceError, UsageError
from perfsvc.model import CacheState, Case, EventKind, Expected, ExpectedKind, FindingState, RootCause, RunState, Status
from perfsvc.service.expect import gpus
from perfsvc.service.expect.cases import OVER_BUDGET_NIGHTS
from perfsvc.service.expect.forget import forget
from perfsvc.service.expect.gpus import devices_here
from perfsvc.service.expect.night import check_hosts, check_night
from perfsvc.service.findings import actions
from tests.unit.store.conftest import GPU, ON_BOTH, suspect

AT = datetime(2026, 1, 1, 2, tzinfo=UTC)
DOT = Case("dot", "tree", (("n", 64),))
OTHER = replace(GPU, uuid="GPU-2", spec="cuda:GPU-2")
THIRD = replace(GPU, uuid="GPU-3", spec="cuda:GPU-3")
LOST = "GPU-2 (NVIDIA H100) on host a"
DOTS = "kernels --select=dot"


class Host:
    """Nights of a host: which GPUs the driver lists, and which cases each GPU measures."""

    def __init__(self, story, monkeypatch, name="a"):
        self.story, self.store, self.name = story, story.store, name
        self.gpus, self.now = [GPU, OTHER], AT
        monkeypatch.setattr(gpus, "find", self._find)

    def _find(self, specs):
        listed = [gpu for gpu in self.gpus if {gpu.spec, "cuda"} & set(specs)]
        if not listed or not {"cuda", *(gpu.spec for gpu in listed)} >= set(specs):
            raise NoDeviceError("there is none", cure="")
        return listed

    def night(self, *cases, specs=("cuda",), over_budget=(), skipped=(), every_s=0.0, host="", **given):
        """Return what a night finds that measures some cases on all its GPUs."""
        host = host or self.name
        night = self.store.nights.begin(host=host, started=self.now, suite="kernels", command_line="", settings={})
        provenance = self.story.provenance(host=host, **{"scope": "kernels", **given})
        run = self.store.runs.begin(provenance, night=night)
        for gpu in self._find(specs):
            for case in cases:
                self.story.put(run, case, device=gpu.uuid)
            for case in skipped:
                self.story.put(run, case, device=gpu.uuid, status=Status.SKIPPED, reason="needs torch")
        self.store.runs.put_over_budget(run, [(GPU.uuid, case, CacheState.COLD) for case in over_budget])
        self.store.runs.end(run, RunState.FINISHED)
        self.store.nights.end(night, RunState.FINISHED, 0)
        return self.check(night, specs, every_s, provenance.scope)

    def check(self, night, specs=("cuda",), every_s=0.0, scope="kernels"):
        given = {"scope": scope, "specs": specs, "every_s": every_s, "now": self.now}
        return check_night(self.store, self.store.nights.get(night), suite_folder=Path("/no/such/suite"), **given)

    def subjects(self):
        return [(finding.root_cause, finding.state) for finding in reversed(self.store.findings.all())]


@pytest.fixture
def host(story, monkeypatch):
    return Host(story, monkeypatch)


@pytest.fixture
def lost(host, story):
    """What the second night finds: a GPU is missing."""
    host.night(story.tiled)
    host.gpus = [GPU]
    return host.night(story.tiled)


def missing(found):
    return [finding.root_cause for finding in found.missing]


# --- GPUs ------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_missing_gpu_is_one_finding_and_its_cases_are_none(host, story):
    assert host.night(story.tiled, DOT).exit_code == 0
    host.gpus = [replace(OTHER, spec="cuda:0"), replace(GPU, spec="cuda:1")]  # another order misses nothing
    assert host.check(1).exit_code == 0
    host.gpus = [GPU]
    missed = host.night(story.tiled)  # and DOT is gone from the suite: it was measured on GPU-1 too
    assert missing(missed) == [LOST, "benchmark dot"]
    assert missed.exit_code == 5


def test_the_cases_that_only_a_missing_gpu_measured_are_not_missing(host, story):
    host.night(story.tiled)
    host.gpus = [GPU]
    story.execute("DELETE FROM measurements WHERE device_id = (SELECT id FROM devices WHERE uuid = 'GPU-1')")
    found = host.night(DOT, skipped=[story.tiled])
    assert missing(found) == [LOST]


def test_nights_that_ask_for_different_gpus_in_turn_do_not_miss_each_others(host, story):
    host.night(story.tiled, specs=("cuda:GPU-1",))
    assert host.night(story.tiled, specs=("cuda:GPU-2",)).exit_code == 5  # the settings may have changed
    assert host.night(story.tiled, specs=("cuda:GPU-1",)).exit_code == 0
    for spec in ("cuda:GPU-2", "cuda:GPU-1"):
        assert host.night(story.tiled, specs=(spec,)).exit_code == 0
    assert host.subjects() == [("GPU-1 (NVIDIA H100) on host a", FindingState.RESOLVED)]


def test_a_night_measures_on_the_named_gpus_that_are_left(host, story):
    host.night(story.tiled, specs=("cuda:GPU-1", "cuda:GPU-2"))
    host.gpus = [OTHER]
    here = devices_here(host.store, "a", "kernels", ("cuda:GPU-1", "cuda:GPU-2"))
    assert (here.devices, here.specs) == ((OTHER,), ("cuda:GPU-2",))
    host.gpus = []
    with pytest.raises(NoDeviceError):
        devices_here(host.store, "a", "kernels", ("cuda:GPU-1", "cuda:GPU-2"))


def test_gpus_that_are_lost_together_are_one_finding_until_all_are_back(host, story):
    host.gpus = [GPU, OTHER, THIRD]
    host.night(story.tiled)
    host.gpus = [GPU]
    (finding,) = host.night(story.tiled).missing
    assert finding.root_cause == "2 GPUs on host a"
    assert finding.evidence.startswith("GPU-2 (NVIDIA H100), GPU-3 (NVIDIA H100); last seen in night 1, ")
    assert host.night(story.tiled).missing == (finding,)
    host.gpus = [GPU, OTHER]
    (left,) = host.night(story.tiled).missing
    assert (left.id, left.root_cause) == (finding.id, "GPU-3 (NVIDIA H100) on host a")
    assert left.evidence.startswith("last seen in night 1, ")
    assert host.night(story.tiled).missing == (left,)
    host.gpus = [GPU, OTHER, THIRD]
    assert host.night(story.tiled).missing == ()
    assert [(event.kind, event.night) for event in host.store.findings.events()] == [
        (EventKind.RAISED, 2),
        (EventKind.RETURNED, 4),
        (EventKind.RESOLVED, 6),
    ]
    back = host.store.findings.events(night=4)[0].text
    assert back == "GPU-2 (NVIDIA H100) is back; still missing: GPU-3 (NVIDIA H100) on host a"


def test_a_benchmark_of_which_a_part_is_back_stays_one_finding_about_the_rest(host, story):
    cases = [Case("dot", "tree", (("n", n),)) for n in (64, 128, 256)]
    host.night(story.tiled, *cases)
    host.night(story.tiled)
    (left,) = host.night(story.tiled, cases[0]).missing
    assert (left.id, left.root_cause) == (1, "point n=128 of dot, point n=256 of dot")
    assert left.evidence.startswith("2 cases, last seen in night 1, ")
    assert [event.text for event in host.store.findings.events(night=3)] == [
        "dot/tree[n=64] is back; still missing: point n=128 of dot, point n=256 of dot"
    ]
    assert host.night(story.tiled, *cases).exit_code == 0
    assert host.subjects() == [("point n=128 of dot, point n=256 of dot", FindingState.RESOLVED)]


def test_each_lost_gpu_has_its_own_last_night(host, story):
    host.gpus = [GPU, OTHER, THIRD]
    for other in (2, 3, 2):
        host.night(story.tiled, specs=("cuda:GPU-1", f"cuda:GPU-{other}"))
    host.gpus = [GPU]
    (finding,) = host.night(story.tiled).missing
    assert finding.root_cause == "2 GPUs on host a"
    assert "GPU-2 (NVIDIA H100) last seen in night 3, " in finding.evidence
    assert "GPU-3 (NVIDIA H100) last seen in night 2, " in finding.evidence


def test_a_gpu_that_goes_missing_with_a_new_selection_is_missed(host, story):
    host.night(story.tiled, DOT)
    host.gpus = [GPU]
    missed = host.night(DOT, scope=DOTS)
    assert missing(missed) == [LOST]
    assert missed.exit_code == 5
    assert host.night(DOT, scope=DOTS).exit_code == 5
    host.gpus = [GPU, OTHER]
    assert host.night(story.tiled, DOT).exit_code == 0
    assert host.night(DOT, scope=DOTS).exit_code == 0
    assert [event.kind for event in host.store.findings.events()] == [EventKind.RAISED, EventKind.RESOLVED]


def test_a_gpu_that_another_host_has_by_now_is_missing_with_the_name_of_that_host(host, story):
    host.night(story.tiled)
    host.gpus = [OTHER]
    host.night(story.tiled, host="b")
    host.gpus = [GPU]
    (finding,) = host.night(story.tiled).missing
    assert finding.root_cause == LOST
    host.now += timedelta(days=1)
    host.gpus = [OTHER]
    host.night(story.tiled, host="b")
    host.gpus = [GPU]
    (finding,) = host.night(story.tiled).missing
    assert finding.evidence.endswith("; host b has GPU-2 (NVIDIA H100), in night 4")


def test_a_gpu_that_was_never_here_is_no_lost_gpu(host, monkeypatch):
    def find(specs):
        if "cuda:7" in specs:
            raise UsageError("there is no device cuda:7", cure="name another")
        return [GPU]

    monkeypatch.setattr(gpus, "find", find)
    with pytest.raises(UsageError, match="cuda:7"):
        devices_here(host.store, "a", "kernels", ("cuda:0", "cuda:7"))


# --- cases -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "subject"),
    [
        (lambda case: case.benchmark == "dot", "benchmark dot"),
        (lambda case: case.variant == "tree", "variant dot/tree"),
        (lambda case: case.point == (("n", 64),), "point n=64 of dot"),
        (lambda case: case == DOT, "case dot/tree[n=64]"),
    ],
)
def test_what_is_gone_together_is_one_finding(host, story, gone, subject):
    cases = [Case("dot", variant, (("n", n),)) for variant in ("tree", "atomic") for n in (64, 128)]
    host.night(story.tiled, *cases)
    missed = host.night(story.tiled, *(case for case in cases if not gone(case)))
    assert missing(missed) == [subject]
    assert missed.exit_code == 4
    assert host.night(story.tiled, *cases).exit_code == 0
    assert host.subjects() == [(subject, FindingState.RESOLVED)]


def test_a_case_that_is_skipped_is_missing_with_the_reason_if_it_ever_had_a_correct_result(host, story):
    host.night(story.tiled, skipped=[DOT])
    assert host.night(story.tiled).exit_code == 0
    host.night(story.tiled, DOT)
    (finding,) = host.night(story.tiled, skipped=[DOT]).missing
    assert finding.evidence.startswith("1 case, last seen in night 3, ")
    assert finding.evidence.endswith("; skipped: needs torch")


def test_a_renamed_case_is_not_missing(host, story):
    host.night(story.tiled, DOT)
    assert host.night(story.tiled, replace(DOT, variant="warp", formerly=("tree",))).exit_code == 0
    names = [row.name for row in host.store.expectations.of_host("a") if row.kind is ExpectedKind.CASE]
    assert "dot/tree[n=64]" not in names


def test_a_case_over_budget_is_missing_only_after_many_nights(host, story):
    host.night(story.tiled, DOT)
    for _ in range(OVER_BUDGET_NIGHTS - 1):
        assert host.night(story.tiled, over_budget=[DOT]).exit_code == 0
    (finding,) = host.night(story.tiled, over_budget=[DOT]).missing
    assert finding.evidence.endswith("; over budget ever since")
    assert host.night(story.tiled, DOT).exit_code == 0


def test_a_run_with_uncommitted_changes_and_another_scope_expect_nothing_of_cases(host, story):
    host.night(story.tiled, DOT)
    assert host.night(story.tiled, dirty=True).exit_code == 0
    assert host.night(story.tiled, scope="kernels --select=transpose").exit_code == 0
    assert host.night(story.tiled).exit_code == 4
    host.night(DOT, scope=DOTS)  # another selection finds it
    assert host.subjects() == [("benchmark dot", FindingState.RESOLVED)]


def test_a_new_selection_names_what_it_no_longer_looks_for_and_misses_what_it_selects(host, story):
    other = replace(DOT, variant="warp")
    host.night(story.tiled, DOT, other)
    missed = host.night(DOT, scope=DOTS)
    assert missing(missed) == ["variant dot/warp"]
    assert missed.text == (
        "missing: variant dot/warp; 1 case of night 1 is no longer looked for, because the night measures "
        "kernels --select=dot now, and measured kernels then"
    )
    assert missed.exit_code == 4
    assert host.check(2, scope=DOTS) == missed  # a night that is resumed raises nothing more
    assert len(host.store.findings.events()) == 1
    again = host.night(DOT, scope=DOTS)
    assert (again.text, again.exit_code) == ("missing: variant dot/warp", 4)
    assert host.night(DOT, other, scope=DOTS).exit_code == 0
    assert host.subjects() == [("variant dot/warp", FindingState.RESOLVED)]


def test_a_first_night_of_a_selection_with_uncommitted_changes_leaves_its_task_to_the_next(host, story):
    host.night(story.tiled, DOT)
    assert host.night(scope=DOTS, dirty=True).exit_code == 0
    missed = host.night(scope=DOTS)
    assert missed.text.startswith("missing: benchmark dot; 1 case of night 1 is no longer looked for, ")


def test_the_old_name_of_a_renamed_host_is_overdue_once_and_forgotten_if_accepted(host, story):
    host.night(story.tiled, every_s=86400.0)
    for _ in range(3):
        host.now += timedelta(days=1)
        missed = host.night(story.tiled, host="a2", every_s=86400.0)
    assert missing(missed) == ["host a"]
    assert len(host.store.findings.events()) == 1
    actions.set_state(host.store, 1, FindingState.ACCEPTED, reason="renamed")
    assert {row.host for row in host.store.expectations.of_host(None)} == {"a2"}
    assert host.night(story.tiled, host="a2", every_s=86400.0).exit_code == 0


def test_two_suites_that_miss_a_benchmark_of_one_name_have_two_findings(host, story):
    for scope in ("kernels", "library"):
        host.night(story.tiled, DOT, scope=scope)
    for scope in ("kernels", "library"):
        (finding,) = host.night(story.tiled, scope=scope).missing
        assert finding.root_cause == "benchmark dot"
        assert finding.evidence.startswith(f"1 case of suite {scope}, last seen in night ")
    assert len(host.subjects()) == 2


def test_a_further_variant_that_goes_missing_is_news_though_the_rest_of_the_benchmark_is_missing_already(host, story):
    other = replace(DOT, variant="warp")
    host.night(story.tiled, DOT)
    host.night(story.tiled)
    host.night(story.tiled, other)
    assert len(host.night(story.tiled).missing) == 2
    assert len(host.store.findings.events(night=4)) == 1


def test_what_only_an_excluded_run_had_is_not_missed_but_what_runs_before_it_had_is(host, story):
    extra = replace(DOT, variant="experiment")
    host.night(story.tiled, DOT)
    host.night(story.tiled, DOT, extra)
    host.store.exclusions.exclude(2, None, reason="the wrong branch", by="ann")
    assert missing(host.night(story.tiled)) == ["benchmark dot"]


def test_a_run_that_was_deleted_does_not_hide_what_is_missing(host, story):
    host.night(story.tiled, DOT)
    story.execute("DELETE FROM runs WHERE id = 1")
    assert missing(host.night(story.tiled)) == ["benchmark dot"]


def test_hosts_that_miss_the_same_benchmark_share_a_finding_which_is_about_what_any_of_them_misses(host, story):
    cases = [Case("dot", "tree", (("n", n),)) for n in (64, 128)]
    for name in ("a", "b"):
        host.night(story.tiled, *cases, host=name)
    for name in ("a", "b"):
        assert host.night(story.tiled, host=name).exit_code == 4
    assert host.subjects() == [("benchmark dot", FindingState.OPEN)]
    host.night(story.tiled, *cases, host="a")  # no news until the other host looks
    assert [event.kind for event in host.store.findings.events()] == [EventKind.RAISED]
    assert host.subjects() == [("benchmark dot", FindingState.OPEN)]
    host.night(story.tiled, cases[0], host="b")
    assert [event.kind for event in host.store.findings.events(night=6)] == [EventKind.RETURNED]
    assert host.subjects() == [("point n=128 of dot", FindingState.OPEN)]
    host.night(story.tiled, *cases, host="b")
    assert host.subjects() == [("point n=128 of dot", FindingState.RESOLVED)]


# --- a finding about something missing -------------------------------------------------------------------------------


def test_neither_another_look_nor_a_run_changes_what_is_missing_and_a_person_resolves_it_too_early(host, story, lost):
    events = host.store.findings.events()
    assert host.check(2) == lost
    assert host.store.findings.events() == events
    (event,) = events
    assert (event.kind, event.night, event.run, event.by) == (EventKind.RAISED, 2, None, "")
    run = story.run()
    updates = host.store.findings.update(
        run, [], [RootCause("abc", "", (suspect(story.series(story.tiled), run=run),))]
    )
    assert (updates.resolved, len(updates.raised)) == ((), 1)
    missing = host.store.findings.get(1)
    assert (missing.state, missing.moved, missing.direction, missing.first_run) == (FindingState.OPEN, (), None, None)
    host.store.findings.set_state(1, FindingState.RESOLVED, by="ann")
    assert host.night(story.tiled).exit_code == 5
    assert [event.kind for event in host.store.findings.events(night=3)] == [EventKind.REOPENED]
    assert host.subjects()[0] == (LOST, FindingState.OPEN)


def test_what_a_person_accepted_or_forgot_is_expected_no_more_until_it_returns(host, story):
    host.night(story.tiled, DOT)
    host.gpus = [GPU]
    host.night(story.tiled)
    host.store.findings.set_state(1, FindingState.ACCEPTED, by="ann", reason="sold")
    forgotten, accepted = forget(host.store, ["dot/*"], by="ann", reason="merged")
    assert [row.name for row in forgotten] == ["dot/tree[n=64]"]
    assert accepted == [2]
    assert host.night(story.tiled).exit_code == 0
    host.gpus = [GPU, OTHER]
    assert host.night(story.tiled, DOT).exit_code == 0
    host.gpus = [GPU]
    assert host.night(story.tiled).exit_code == 5
    states = [FindingState.ACCEPTED] * 2 + [FindingState.OPEN] * 2
    assert [state for _, state in host.subjects()] == states


def test_forgetting_a_host_forgets_all_that_is_on_it_and_a_wrong_or_ambiguous_name_is_refused(host, story):
    host.gpus = [GPU, replace(GPU, uuid="GPU-10", spec="cuda:GPU-10")]
    for name in ("a", "b"):
        host.night(story.tiled, host=name)
    with pytest.raises(UsageError, match="nothing that is expected is named 'GPU-7'"):
        forget(host.store, ["b", "GPU-7"], by="ann", reason="")
    forgotten, _ = forget(host.store, ["b"], by="ann", reason="")
    assert {row.kind for row in forgotten} == set(ExpectedKind)
    assert {row.host for row in host.store.expectations.of_host(None)} == {"a"}
    with pytest.raises(UsageError, match="2 GPUs begin with 'gpu': GPU-1, GPU-10"):
        forget(host.store, ["gpu"], by="ann", reason="")
    forgotten, _ = forget(host.store, ["GPU-1"], by="ann", reason="")  # a whole uuid names only itself
    assert {row.name for row in forgotten} == {"GPU-1"}


def test_accepting_a_finding_about_something_missing_forgets_all_of_it(host, lost):
    finding = actions.set_state(host.store, 1, FindingState.ACCEPTED, reason="sold")
    assert (finding.state, finding.reason) == (FindingState.ACCEPTED, "sold")
    assert "GPU-2" not in {row.name for row in host.store.expectations.of_host("a")}
    with pytest.raises(UsageError, match="finding 1 is accepted already: sold"):
        actions.set_state(host.store, 1, FindingState.ACCEPTED, reason="sold")
    with pytest.raises(UsageError, match="nothing that finding 1 reports is missing or expected any more"):
        actions.set_state(host.store, 1, FindingState.OPEN)
    with pytest.raises(UsageError, match="finding 1 reports nothing that is expected and missing"):
        forget(host.store, (), by="ann", reason="", finding=1)


def test_forgetting_a_part_of_a_finding_leaves_it_open_about_the_rest(host, story):
    host.gpus = [GPU, OTHER, THIRD]
    host.night(story.tiled)
    host.gpus = [GPU]
    host.night(story.tiled)
    assert forget(host.store, ["GPU-2"], by="ann", reason="sold")[1] == []
    assert host.subjects() == [("GPU-3 (NVIDIA H100) on host a", FindingState.OPEN)]
    assert missing(host.night(story.tiled)) == ["GPU-3 (NVIDIA H100) on host a"]
    assert forget(host.store, ["GPU-3"], by="ann", reason="sold")[1] == [1]


# --- hosts -----------------------------------------------------------------------------------------------------------


def overdue(store):
    return missing(check_hosts(store, 86400.0))


def test_a_host_is_overdue_one_and_a_half_intervals_after_its_last_night(story):
    store, now = story.store, datetime.now(UTC)
    for name, hours in (("late", 37), ("grace", 35)):
        night = store.nights.begin(host=name, started=now, suite="", command_line="", settings={})
        store.nights.end(night, RunState.FINISHED, 0)
        seen = now - timedelta(hours=hours)
        store.expectations.update([Expected(ExpectedKind.HOST, name, name, night, seen)], [])
        story.execute("UPDATE nights SET started_at = :at WHERE id = :id", at=f"{seen:%Y-%m-%d %H:%M:%S.%f}", id=night)
    assert check_hosts(store, 0.0).missing == ()
    assert overdue(store) == ["host late"]
    assert overdue(store) == ["host late"]
    assert len(store.findings.events()) == 1
    store.nights.begin(host="late", started=now, suite="", command_line="", settings={})
    assert overdue(store) == []
    assert [event.kind for event in store.findings.events()] == [EventKind.RAISED, EventKind.RESOLVED]


# --- many nights -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_over_many_nights_every_absence_is_raised_once_and_resolved_once(host, seed):
    chance = random.Random(seed)
    cases = [Case(name, "tree", (("n", 64),)) for name in ("dot", "scan", "sort")]
    planted, gone = [], set()

    def plant(subject, *, is_gone):
        """Remember a change of what is there, as the events that are to follow."""
        if is_gone != (subject in gone):
            planted.append((subject, EventKind.RAISED if is_gone else EventKind.RESOLVED))
            (gone.add if is_gone else gone.discard)(subject)

    host.night(*cases, host="b")
    host.night(*cases)
    silent_from = silent_until = -1
    for day in range(1, 41):
        host.now = AT + timedelta(days=day)
        if day > silent_until + 1 and chance.random() < 0.1:
            silent_from, silent_until = day, day + 10
        if not silent_from <= day <= silent_until:
            host.gpus = [GPU, OTHER]
            plant("host b", is_gone=False)
            host.night(*cases, host="b", every_s=86400.0)
        present = [case for case in cases if case == cases[0] or chance.random() < 0.9]
        host.gpus = [GPU, OTHER] if chance.random() < 0.9 else [GPU]
        host.now += timedelta(hours=1)
        plant("host b", is_gone=silent_from < day <= silent_until)
        plant(LOST, is_gone=len(host.gpus) == 1)
        for case in cases:
            plant(f"benchmark {case.benchmark}", is_gone=case not in present)
        host.night(*present, every_s=86400.0)
    subjects = {finding.id: finding.root_cause for finding in host.store.findings.all()}
    events = [(subjects[event.finding], event.kind) for event in host.store.findings.events()]
    assert sorted(events) == sorted(planted)
    assert len(planted) > 10
    assert {finding.root_cause for finding in host.store.findings.active()} == gone
