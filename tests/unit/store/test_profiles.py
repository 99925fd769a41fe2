"""Stored profiles and explanations."""

import zlib
from dataclasses import replace

import pytest

from perfsvc.errors import DatabaseError, NotMeasuredError
from perfsvc.model import (
    CaseExplanation,
    Cause,
    ChangeKind,
    Direction,
    Evidence,
    HotLine,
    Instruction,
    Judgement,
    Kind,
    Profile,
    ProfiledKernel,
    ProfileResult,
    ProfilerRule,
    Reason,
    ReasonKind,
    ReplayRecord,
    SourceLine,
    Suspect,
    Verdict,
    digest,
)

INSTRUCTIONS = (
    Instruction(0, "LDG.E R6, desc[UR6][R6.64]", {"instructions": 131072.0}, SourceLine("../k.cu", 7)),
    Instruction(16, "EXIT"),
)
CONFLICTS = Reason(
    ReasonKind.BANK_CONFLICTS,
    0.97,
    "loads 1-way → 32-way",
    (Evidence("shared_bank_conflicts", 0.0, 8e6), Evidence("shared_store_requests", None, 1.0)),
    (ProfilerRule("SharedMemoryConflicts", "32-way", 0.8), ProfilerRule("Other", "no estimate")),
    counted="excess passes",
    before=(HotLine(1.0, "LDS R2, [R4]", 3),),
    after=(
        HotLine(0.75, "LDS R2, [R4]", 1, SourceLine("../tile.cuh", 31), 'b[i] = tile[x][y]; // "é\x00"', changed=True),
    ),
)
REPORT = b"NVR\0" + bytes(5000)


@pytest.fixture
def binary(story):
    """The binary of the case in the second night."""
    record = ReplayRecord(story.tiled, Kind.KERNEL, (), (), (digest(b"cubin"),), digest(b"# bench.py"), seed=7)
    stored = story.put_binary(record, {digest(b"cubin"): b"cubin"}, b"# bench.py", {})
    story.run(story.tiled)
    run = story.begin()
    story.put(run, story.tiled, binary=stored)
    return stored


@pytest.fixture
def profiled(story, binary):
    metrics = {"duration_s": 1e-4, "registers": 32.0, "tensor_active": None}
    rules = (
        ProfilerRule("SharedMemoryConflicts", "a 32-way bank conflict", 0.5),
        ProfilerRule("Occupancy", "too few warps"),
    )
    return ProfileResult(
        story.tiled,
        run=2,
        binary=binary,
        device=story.gpu.uuid,
        device_model=story.gpu.model,
        profiler="ncu",
        sections="full",
        profile=Profile("transpose_tiled", metrics, rules, story.gpu.model, "sm_90", "2025.3.1", INSTRUCTIONS),
        launch=0,
        wall_s=7.0,
    )


def failed(profiled):
    return replace(profiled, profile=None, launch=None, reason="the driver refuses the counters", cure="ask root")


def test_a_profile_is_read_as_it_was_stored(story, profiled):
    (number,) = story.store.profiles.put([profiled], REPORT)
    assert story.store.profiles.of_binary(profiled.binary) == [replace(profiled, id=number)]
    assert story.store.profiles.of_binary(profiled.binary + 1) == []


def test_the_kernels_of_a_graph_come_back_in_their_order(story, profiled):
    kernels = (ProfiledKernel("first", 0.5), ProfiledKernel("second", None), ProfiledKernel("first", 0.25))
    several = replace(profiled, profile=replace(profiled.profile, kernels=kernels))
    (number,) = story.store.profiles.put([several])
    assert story.store.profiles.get([number])[number].profile.kernels == kernels
    story.execute("UPDATE profiles SET kernels = :content", content=b"none")
    with pytest.raises(DatabaseError, match=f"kernels of profile {number} is damaged"):
        story.store.profiles.get([number])


def test_a_profile_without_instructions_has_none_in_the_database(story, profiled):
    plain = replace(profiled, profile=replace(profiled.profile, instructions=()))
    story.store.profiles.put([plain, failed(profiled)])
    assert [tuple(row) for row in story.execute("SELECT instructions FROM profiles")] == [(None,), (None,)]
    assert story.store.profiles.of_binary(profiled.binary)[0].profile == plain.profile


@pytest.mark.parametrize("content", [b"", b"no zlib", zlib.compress(b"[1]"), zlib.compress(b"[{")])
def test_damaged_instructions_are_a_clear_error(story, profiled, content):
    (number,) = story.store.profiles.put([profiled])
    story.execute("UPDATE profiles SET instructions = :content", content=content)
    with pytest.raises(DatabaseError, match=f"instructions of profile {number} is damaged"):
        story.store.profiles.of_binary(profiled.binary)


def test_a_metric_that_was_not_counted_is_null(story, profiled):
    story.store.profiles.put([profiled])
    rows = story.execute("SELECT name, value FROM profile_metrics ORDER BY name")
    assert [tuple(row) for row in rows] == [("duration_s", 1e-4), ("registers", 32.0), ("tensor_active", None)]


def test_a_report_of_several_launches_is_stored_once_and_read_back_unchanged(story, profiled):
    numbers = story.store.profiles.put([replace(profiled, run=1), profiled], REPORT)
    assert len(numbers) == 2
    assert {story.store.profiles.report(number) for number in numbers} == {REPORT}
    rows = story.execute("SELECT sha256, size_bytes, LENGTH(content) FROM artifacts WHERE kind = 'report'")
    ((sha256, size, stored),) = rows
    assert (sha256, size) == (digest(REPORT), len(REPORT))
    assert stored < size


def test_a_failed_profile_has_a_reason_and_no_report(story, profiled):
    (number,) = story.store.profiles.put([failed(profiled)])
    rows = story.execute("SELECT id, run_id, reason, cure, launch, wall_s FROM profiles")
    assert [tuple(row) for row in rows] == [(number, 2, "the driver refuses the counters", "ask root", None, 7.0)]
    with pytest.raises(NotMeasuredError, match="no report"):
        story.store.profiles.report(number)


def test_profiles_of_a_binary_are_the_successful_ones_newest_first(story, profiled, binary):
    first, _, second, _ = story.store.profiles.put(
        [profiled, failed(profiled), replace(profiled, sections="basic"), replace(profiled, binary=None)]
    )
    assert [profile.id for profile in story.store.profiles.of_binary(binary)] == [second, first]


def test_a_binary_counts_as_failed_on_a_device_until_it_is_profiled_there(story, profiled, binary):
    story.store.devices.put(replace(story.gpu, uuid="GPU-2"))
    assert story.store.profiles.failed(story.gpu.uuid) == set()
    story.store.profiles.put([profiled, failed(profiled)])
    assert story.store.profiles.failed(story.gpu.uuid) == {binary}
    assert story.store.profiles.failed("GPU-2") == set()
    story.store.profiles.put([replace(failed(profiled), binary=None), profiled])
    assert story.store.profiles.failed(story.gpu.uuid) == set()


@pytest.fixture
def explained(story, profiled):
    profiles = tuple(story.store.profiles.put([replace(profiled, run=1), profiled]))
    return CaseExplanation(
        story.tiled,
        story.gpu.uuid,
        story.gpu.model,
        baseline_run=1,
        candidate_run=2,
        sentence="1.7 times slower: bank conflicts",
        reasons=(CONFLICTS, Reason(ReasonKind.STALLS, 0.2, "", follows=ReasonKind.BANK_CONFLICTS)),
        factor=1.75,
        profiles=profiles,
    )


def test_an_explanation_is_read_as_it_was_stored(story, explained):
    story.store.profiles.put_explanation(explained)
    assert story.store.profiles.explanations(2) == [explained]
    assert story.store.profiles.explanations(1) == []
    assert story.store.profiles.explanations_of(story.tiled.id) == [explained]


def test_an_unexplained_change_has_a_reason(story, explained):
    blind = replace(explained, sentence="", reasons=(), factor=None, reason="ncu is missing", profiles=(None, None))
    story.store.profiles.put_explanation(blind)
    assert story.store.profiles.explanations(2) == [blind]
    assert blind.text == "not explained: ncu is missing"


def test_an_explanation_is_found_under_every_name_of_its_case(story, explained):
    story.store.profiles.put_explanation(explained)
    renamed = replace(story.tiled, variant="shared", formerly=(story.tiled.variant,))
    story.run(renamed)
    assert story.store.profiles.explanations_of(renamed.id) == [explained]


def test_profiles_and_explanations_are_deleted_with_their_run_only(story, explained):
    story.store.profiles.put_explanation(explained)
    story.execute("DELETE FROM runs WHERE id = 1")
    (explanation,) = story.store.profiles.explanations(2)
    assert (explanation.baseline_run, explanation.profiles[0]) == (None, None)
    story.execute("DELETE FROM runs WHERE id = 2")
    for table in ("profiles", "profile_metrics", "profile_rules", "explanations"):
        assert story.execute(f"SELECT * FROM {table}") == []  # noqa: S608 - names of our own


def raise_finding(story, run, cause=Cause.KERNEL):
    judged = Judgement(
        story.series(story.tiled), Verdict.REGRESSION, ratio=1.75, baseline_run=1, candidate_run=run, cause=cause
    )
    story.raise_finding(run, [Suspect(judged, ChangeKind.REGRESSION, Direction.SLOWER)], "the old one is faster")


def test_a_finding_has_the_newest_explanation_of_its_cases_and_its_time(story, explained):
    story.store.profiles.put_explanation(replace(explained, candidate_run=1, sentence="of another time"))
    raise_finding(story, 2)
    assert [finding.why for finding in story.store.findings.active()] == [""]
    for sentence in ("first", "second", ""):
        story.store.profiles.put_explanation(replace(explained, sentence=sentence))
    assert [finding.why for finding in story.store.findings.active()] == ["second"]
    story.run(story.tiled)
    raise_finding(story, 3)
    assert [(finding.last_run, finding.why) for finding in story.store.findings.active()] == [(3, "second")]


def test_an_explanation_on_another_device_is_not_used(story, explained):
    raise_finding(story, 2)
    story.store.devices.put(replace(story.gpu, uuid="GPU-2"))
    story.store.profiles.put_explanation(replace(explained, device="GPU-2"))
    assert [finding.why for finding in story.store.findings.active()] == [""]


def test_damaged_reasons_are_reported_with_the_number_of_their_explanation(story, explained):
    story.store.profiles.put_explanation(explained)
    story.execute("UPDATE explanations SET reasons = '[{]'")
    with pytest.raises(DatabaseError, match="the list of reasons of explanation 1"):
        story.store.profiles.explanations(2)


def test_a_finding_has_the_reasons_of_its_cases_or_why_there_are_none(story, explained):
    raise_finding(story, 2)
    blind = replace(explained, sentence="", reasons=(), factor=None, reason="ncu is missing", profiles=(None, None))
    shown = []
    for explanation in (blind, explained, blind):
        story.store.profiles.put_explanation(explanation)
        ((moved,),) = (finding.moved for finding in story.store.findings.active())
        shown.append(moved.explanation)
    assert shown == [blind, explained, explained]  # a failure hides no answer


def test_a_case_awaits_its_profile_if_its_run_has_explanations_of_other_cases(story, explained):
    def awaits():
        return [moved.awaits_profile for finding in story.store.findings.active() for moved in finding.moved]

    raise_finding(story, 2)
    assert awaits() == [False]  # without --profile
    story.store.profiles.put_explanation(replace(explained, case=replace(story.tiled, variant="other")))
    assert awaits() == [True]
    story.store.profiles.put_explanation(explained)
    assert awaits() == [False]


def test_a_finding_about_the_environment_awaits_no_profile(story, explained):
    story.store.profiles.put_explanation(replace(explained, case=replace(story.tiled, variant="other")))
    raise_finding(story, 2, cause=Cause.ENVIRONMENT)
    assert [moved.awaits_profile for finding in story.store.findings.active() for moved in finding.moved] == [False]
