from perfsvc.device.memory import ARENA_ALIGNMENT, PAGE_BYTES, Arena, arena_bytes

START = 10 * PAGE_BYTES


def test_pieces_follow_each_other_and_large_ones_begin_at_pages():
    arena = Arena(START, 8 * PAGE_BYTES)
    small, large, tiny = arena.allocate(100), arena.allocate(PAGE_BYTES + 1), arena.allocate(1)
    assert (small, large) == (START, START + PAGE_BYTES)
    assert tiny == START + 2 * PAGE_BYTES + ARENA_ALIGNMENT


def test_equal_requests_get_equal_addresses_in_a_new_arena():
    arena = Arena(START, 8 * PAGE_BYTES)
    first = [arena.allocate(size) for size in (100, 3000, PAGE_BYTES)]
    for address in (first[1], first[0], first[2]):  # in whatever order
        assert arena.free(address)
    assert arena.allocate(5 * PAGE_BYTES) == START
    assert arena.free(START)
    assert [arena.allocate(size) for size in (100, 3000, PAGE_BYTES)] == first


def test_an_arena_without_room_allocates_nothing():
    arena = Arena(START, PAGE_BYTES)
    assert arena.allocate(PAGE_BYTES + 1) is None
    assert arena.allocate(PAGE_BYTES) == START
    assert arena.allocate(1) is None
    assert not arena.free(START + 1)
    assert Arena(0, 0).allocate(0) is None


def test_the_arena_is_a_quarter_of_the_memory_in_whole_pages():
    assert arena_bytes(80 << 30) == 20 << 30
    assert arena_bytes((8 << 30) + 12345) == 2 << 30
