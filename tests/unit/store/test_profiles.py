"""Stored profiles and explanations."""

import zlib
from dataclasses import replace

import pytest

from perfsvc.errors import DatabaseError, NotMeasuredError
from perfsvc.model import (
    CaseExplanation,
    Cause,
    Evidence,
    HotLine,
    Instruction,
    Profile,
    ProfiledKernel,
    ProfileResult,
    ProfilerRule,
    Reason,
    ReasonKind,
    SourceLine,
    digest,
)
from tests.unit.store.conftest import ON_BOTH, suspect

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
KERNELS = (ProfiledKernel("first", 0.5), ProfiledKernel("second", None), ProfiledKernel("first", 0.25))
REPORT = b"NVR\0" + bytes(5000)


@pytest.fixture
def binary(story):
    """The binary of the case in the second night."""
    stored = story.binary(story.tiled, b"cubin")
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


@ON_BOTH
def test_profiles_are_read_as_they_were_stored(story, profiled):
    of_graph = replace(profiled, profile=replace(profiled.profile, kernels=KERNELS))
    plain = replace(profiled, profile=replace(profiled.profile, instructions=()))
    given = [profiled, plain, of_graph, failed(profiled), replace(profiled, binary=None)]
    numbers = story.store.profiles.put(given, REPORT)
    newest_first = zip((of_graph, plain, profiled), numbers[2::-1], strict=True)
    expected = [replace(each, id=number) for each, number in newest_first]
    assert story.store.profiles.of_binary(profiled.binary) == expected
    assert story.store.profiles.of_binary(profiled.binary + 1) == []
    has_none = [row.instructions is None for row in story.execute("SELECT instructions FROM profiles ORDER BY id")]
    assert has_none == [False, True, False, True, False]
    query = "SELECT name, value FROM profile_metrics WHERE profile_id = :number ORDER BY name"
    metrics = [tuple(row) for row in story.execute(query, number=numbers[0])]
    assert metrics == [("duration_s", 1e-4), ("registers", 32.0), ("tensor_active", None)]  # the last was not counted


def test_damaged_instructions_and_kernels_are_a_clear_error(story, profiled):
    (number,) = story.store.profiles.put([replace(profiled, profile=replace(profiled.profile, kernels=KERNELS))])
    for content in (b"", b"no zlib", zlib.compress(b"[1]"), zlib.compress(b"[{")):
        story.execute("UPDATE profiles SET instructions = :content", content=content)
        with pytest.raises(DatabaseError, match=f"instructions of profile {number} is damaged"):
            story.store.profiles.of_binary(profiled.binary)
    story.execute("UPDATE profiles SET instructions = NULL, kernels = :content", content=b"none")
    with pytest.raises(DatabaseError, match=f"kernels of profile {number} is damaged"):
        story.store.profiles.get([number])


def test_a_report_of_several_launches_is_stored_once_and_a_failed_profile_has_a_reason_instead(story, profiled):
    numbers = story.store.profiles.put([replace(profiled, run=1), profiled], REPORT)
    assert len(numbers) == 2
    assert {story.store.profiles.report(number) for number in numbers} == {REPORT}
    rows = story.execute("SELECT sha256, size_bytes, LENGTH(content) FROM artifacts WHERE kind = 'report'")
    ((sha256, size, stored),) = rows
    assert (sha256, size) == (digest(REPORT), len(REPORT))
    assert stored < size
    (number,) = story.store.profiles.put([failed(profiled)])
    rows = story.execute("SELECT id, run_id, reason, cure, launch, wall_s FROM profiles WHERE reason <> ''")
    assert [tuple(row) for row in rows] == [(number, 2, "the driver refuses the counters", "ask root", None, 7.0)]
    with pytest.raises(NotMeasuredError, match="no report"):
        story.store.profiles.report(number)


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


@ON_BOTH
def test_an_explanation_or_its_reason_is_read_as_it_was_stored_under_every_name_of_its_case(story, explained):
    blind = replace(explained, sentence="", reasons=(), factor=None, reason="ncu is missing", profiles=(None, None))
    for each in (explained, blind):
        story.store.profiles.put_explanation(each)
    assert story.store.profiles.explanations(2) == [explained, blind]
    assert story.store.profiles.explanations(1) == []
    assert blind.text == "not explained: ncu is missing"
    renamed = replace(story.tiled, variant="shared", formerly=(story.tiled.variant,))
    for name in (story.tiled.id, renamed.id):
        story.run(renamed)
        of_present_name = replace(explained, case=replace(renamed, formerly=()))
        assert of_present_name in story.store.profiles.explanations_of(name)


@ON_BOTH
def test_profiles_and_explanations_are_deleted_with_their_run_only(story, explained):
    story.store.profiles.put_explanation(explained)
    story.execute("DELETE FROM runs WHERE id = 1")
    (explanation,) = story.store.profiles.explanations(2)
    assert (explanation.baseline_run, explanation.profiles[0]) == (None, None)
    story.execute("DELETE FROM runs WHERE id = 2")
    for table in ("profiles", "profile_metrics", "profile_rules", "explanations"):
        assert story.execute(f"SELECT * FROM {table}") == []  # noqa: S608 - names of our own


def raise_finding(story, run, cause=Cause.KERNEL):
    story.raise_finding(run, [suspect(story.series(story.tiled), 1.75, run=run, cause=cause)], "the old one is faster")


def test_a_finding_has_the_newest_explanation_of_its_cases_and_its_time(story, explained):
    story.store.profiles.put_explanation(replace(explained, candidate_run=1, sentence="of another time"))
    story.store.devices.put(replace(story.gpu, uuid="GPU-2"))
    story.store.profiles.put_explanation(replace(explained, device="GPU-2"))
    raise_finding(story, 2)
    assert [finding.why for finding in story.store.findings.active()] == [""]
    for sentence in ("first", "second", ""):
        story.store.profiles.put_explanation(replace(explained, sentence=sentence))
    assert [finding.why for finding in story.store.findings.active()] == ["second"]
    story.run(story.tiled)
    raise_finding(story, 3)
    assert [(finding.last_run, finding.why) for finding in story.store.findings.active()] == [(3, "second")]


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


def awaits(story):
    return [moved.awaits_profile for finding in story.store.findings.active() for moved in finding.moved]


def test_a_finding_about_the_environment_awaits_no_profile(story, explained):
    story.store.profiles.put_explanation(replace(explained, case=replace(story.tiled, variant="other")))
    raise_finding(story, 2, cause=Cause.ENVIRONMENT)
    assert awaits(story) == [False]


def test_a_case_awaits_its_profile_if_its_run_has_explanations_of_other_cases(story, explained):
    raise_finding(story, 2)
    assert awaits(story) == [False]  # without --profile
    story.store.profiles.put_explanation(replace(explained, case=replace(story.tiled, variant="other")))
    assert awaits(story) == [True]
    story.store.profiles.put_explanation(explained)
    assert awaits(story) == [False]
