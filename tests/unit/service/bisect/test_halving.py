"""Halving a history, compared with measuring every commit."""

import math
import random

from perfsvc.service.bisect.search import CommitState, narrow

GOOD, BAD, SKIPPED = CommitState


def line(count):
    """A line of commits c1 … cN; c0 is the good commit."""
    return {f"c{place}": (f"c{place - 1}",) for place in range(1, count + 1)}


def merges(chance, count):
    """Random history: each commit has one or two earlier parents; the last one merges all open branches."""
    history = {"c1": ("c0",)}
    for place in range(2, count):
        parent, other = (f"c{chance.randrange(place)}" for _ in range(2))
        history[f"c{place}"] = (parent, other) if chance.random() < 0.3 and parent != other else (parent,)
    loose = set(history) - {parent for parents in history.values() for parent in parents}
    history[f"c{count}"] = tuple(sorted(loose))
    return history


def descendants(history, culprit):
    """All that have a commit in their past, itself included."""
    found = {culprit}
    for name, parents in history.items():
        if found & set(parents):
            found.add(name)
    return found


def search(history, truth, known=(), unchanged=()):
    """What is left when nothing more can be asked, and what was asked."""
    states = {list(history)[-1]: BAD, **dict(known)}
    asked = []
    while (left := narrow(history, states, unchanged)).ask is not None:
        asked.append(left.ask)
        states[left.ask] = truth[left.ask]
    return left, asked


def test_every_commit_of_a_line_is_found_with_few_questions():
    for count in (1, 2, 3, 7, 12, 60):
        history = line(count)
        for culprit in history:
            bad = descendants(history, culprit)
            left, asked = search(history, {name: BAD if name in bad else GOOD for name in history})
            assert left.suspects == (culprit,), count
            assert len(asked) <= math.ceil(math.log2(count))
            assert left.below == (None if culprit == "c1" else f"c{int(culprit[1:]) - 1}")


def test_a_commit_is_found_among_merges():
    for seed in range(40):
        chance = random.Random(seed)
        history = merges(chance, 15)
        culprit = chance.choice(list(history))
        bad = descendants(history, culprit)
        left, asked = search(history, {name: BAD if name in bad else GOOD for name in history})
        assert left.suspects == (culprit,), seed
        assert len(asked) == len(set(asked))


def test_skipped_commits_stay_suspects_only_if_they_may_be_the_culprit():
    for seed in range(40):
        chance = random.Random(seed)
        history = line(12)
        place = chance.randrange(1, 13)
        skipped = {name for name in list(history)[:-1] if chance.random() < 0.4}
        truth = {f"c{at}": SKIPPED if f"c{at}" in skipped else BAD if at >= place else GOOD for at in range(1, 13)}
        left, _ = search(history, truth)
        first = next(at for at in range(place, 13) if f"c{at}" not in skipped)
        last = max((at for at in range(1, place) if f"c{at}" not in skipped), default=0)
        assert left.suspects == tuple(f"c{at}" for at in range(last + 1, first + 1)), seed
        assert left.first == f"c{first}"
        assert f"c{place}" in left.suspects


def test_the_newest_of_several_changes_back_and_forth_counts():
    known = {"c2": BAD, "c3": BAD, "c5": GOOD, "c6": GOOD, "c8": BAD}
    left, asked = search(line(9), dict.fromkeys(line(9), BAD), known)
    assert asked == ["c7"]
    assert (left.suspects, left.below) == (("c7",), "c6")


def test_commits_with_the_code_of_a_parent_are_neither_measured_nor_suspects():
    history = line(9)
    left, asked = search(history, dict.fromkeys(history, GOOD), unchanged={f"c{at}" for at in range(2, 9)})
    assert asked == ["c1"]
    assert (left.suspects, left.below) == (("c9",), "c1")


def test_a_side_branch_without_the_change_is_cleared_as_a_whole():
    history = {"a": ("good",), "b": ("a",), "side1": ("good",), "side2": ("side1",), "m": ("b", "side2")}
    truth = {"a": GOOD, "b": BAD, "side1": GOOD, "side2": GOOD, "m": BAD}
    left, _ = search(history, truth)
    assert (left.suspects, left.below) == (("b",), "a")


def test_a_merge_of_two_good_branches_can_be_the_culprit():
    history = {"a": ("good",), "b": ("good",), "m": ("a", "b")}
    left, asked = search(history, {"a": GOOD, "b": GOOD})
    assert left.suspects == ("m",)
    assert sorted(asked) == ["a", "b"]
