import os

import pytest

from perfsvc.device.telemetry import OtherProcesses

OURS, FIRST, SECOND, NEWCOMER = 40170, 11, 12, 13


class Board:
    """Who is on the list, and who worked since the last question; None where the driver does not say."""

    def __init__(self, *there):
        self.there, self.worked, self.lists = set(there), set(), 0

    def listed(self):
        self.lists += 1
        return None if self.there is None else frozenset(self.there)

    def work(self):
        if self.worked is None:
            return None
        worked, self.worked = self.worked, set()
        return frozenset(worked)

    def claimed(self, *came):
        others = OtherProcesses(self.listed, self.work)
        self.there |= set(came)
        others.recognise_own()
        return others


def test_before_our_context_is_there_nobody_can_be_told_from_us():
    board = Board(FIRST)
    board.worked = {FIRST}
    assert OtherProcesses(board.listed, board.work).at_work() == ()


def test_the_one_that_came_with_our_context_is_ours_under_whatever_id():
    board = Board(FIRST, SECOND)
    others = board.claimed(OURS)
    board.worked = {OURS, SECOND, FIRST}
    assert others.at_work() == (FIRST, SECOND)
    assert others.at_work() == ()


def test_what_was_done_before_our_context_was_there_disturbed_nothing():
    board = Board(FIRST)
    board.worked = {FIRST}
    assert board.claimed(OURS).at_work() == ()


def test_our_own_id_tells_us_from_one_that_came_in_the_same_moment():
    board = Board()
    others = board.claimed(os.getpid(), NEWCOMER)
    board.worked = {os.getpid(), NEWCOMER}
    assert others.at_work() == (NEWCOMER,)


def test_our_own_id_is_known_even_if_our_context_was_quicker_than_the_first_look():
    board = Board(os.getpid(), FIRST)
    others = board.claimed()
    board.worked = {os.getpid(), FIRST}
    assert others.at_work() == (FIRST,)


def test_in_a_container_one_that_came_in_the_same_moment_counts_as_ours():
    board = Board(FIRST)
    others = board.claimed(OURS, NEWCOMER)
    board.worked = {OURS, NEWCOMER, FIRST}
    assert others.at_work() == (FIRST,)


@pytest.mark.parametrize("there", [{FIRST}, set(), None])
def test_where_ours_cannot_be_found_nobody_is_named(there):
    board = Board(FIRST)
    board.there = there
    others = OtherProcesses(board.listed, board.work)
    others.recognise_own()
    board.worked = {FIRST, OURS}
    assert others.at_work() == ()


def test_one_that_comes_later_is_found_when_it_works():
    board = Board()
    others = board.claimed(OURS)
    board.there |= {NEWCOMER}
    assert others.at_work() == ()
    board.worked = {NEWCOMER}
    assert others.at_work() == (NEWCOMER,)


def test_one_that_the_list_does_not_know_is_not_named_and_looked_up_once():
    board = Board(FIRST)
    others = board.claimed(OURS)
    board.lists = 0
    for _ in range(3):
        board.worked = {999, FIRST}  # 999 is ours as the other call counts it
        assert others.at_work() == (FIRST,)
    assert board.lists == 1


def test_looks_ask_for_no_list_where_everybody_is_known():
    board = Board(FIRST)
    others = board.claimed(OURS)
    board.lists = 0
    board.worked = {OURS, FIRST}
    assert others.at_work() == (FIRST,)
    assert board.lists == 0


def test_without_utilisation_the_others_that_are_there_are_at_work():
    board = Board(FIRST)
    others = board.claimed(OURS)
    board.worked = None
    assert others.at_work() == (FIRST,)
    board.there = {OURS, NEWCOMER}
    assert others.at_work() == (NEWCOMER,)
    board.there = None
    assert others.at_work() == ()
