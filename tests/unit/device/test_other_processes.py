import os

from perfsvc.device.telemetry import OtherProcesses

OURS, FIRST, SECOND, NEWCOMER = 40170, 11, 12, 13


class Gpu:
    """The listed processes, and those that worked since the last call; None if the driver does not know them."""

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


def test_before_our_context_exists_no_other_process_is_reported():
    gpu = Gpu(FIRST)
    gpu.worked = {FIRST}
    assert OtherProcesses(gpu.listed, gpu.work).at_work() == ()
    gpu.worked = {FIRST}
    assert gpu.claimed(OURS).at_work() == ()  # it worked before


def test_our_own_id_distinguishes_us_from_a_process_that_came_at_the_same_moment_and_from_those_before():
    gpu = Gpu()
    others = gpu.claimed(os.getpid(), NEWCOMER)
    gpu.worked = {os.getpid(), NEWCOMER}
    assert others.at_work() == (NEWCOMER,)
    gpu = Gpu(os.getpid(), FIRST)
    others = gpu.claimed()
    gpu.worked = {os.getpid(), FIRST}
    assert others.at_work() == (FIRST,)


def test_in_a_container_a_process_that_came_at_the_same_moment_counts_as_ours():
    gpu = Gpu(FIRST)
    others = gpu.claimed(OURS, NEWCOMER)
    gpu.worked = {OURS, NEWCOMER, FIRST}
    assert others.at_work() == (FIRST,)


def test_if_ours_cannot_be_recognised_no_other_is_reported():
    for there in ({FIRST}, set(), None):
        gpu = Gpu(FIRST)
        gpu.there = there
        others = OtherProcesses(gpu.listed, gpu.work)
        others.recognise_own()
        gpu.worked = {FIRST, OURS}
        assert others.at_work() == ()


def test_a_process_that_comes_later_is_reported_when_it_works():
    gpu = Gpu()
    others = gpu.claimed(OURS)
    gpu.there |= {NEWCOMER}
    assert others.at_work() == ()
    gpu.worked = {NEWCOMER}
    assert others.at_work() == (NEWCOMER,)


def test_an_unlisted_process_is_not_reported_and_looked_up_once_and_known_ones_never():
    gpu = Gpu(FIRST)
    others = gpu.claimed(OURS)
    gpu.lists = 0
    gpu.worked = {OURS, FIRST}
    assert others.at_work() == (FIRST,)
    assert gpu.lists == 0
    for _ in range(3):
        gpu.worked = {999, FIRST}  # 999 is our own id in the other call
        assert others.at_work() == (FIRST,)
    assert gpu.lists == 1


def test_without_utilisation_all_listed_others_are_at_work():
    gpu = Gpu(FIRST)
    others = gpu.claimed(OURS)
    gpu.worked = None
    assert others.at_work() == (FIRST,)
    gpu.there = {OURS, NEWCOMER}
    assert others.at_work() == (NEWCOMER,)
    gpu.there = None
    assert others.at_work() == ()
