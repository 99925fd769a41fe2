"""Answers that are made once for all readers: what is kept, what is made anew, and for whom."""

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import Request

from perfsvc.server import kept
from perfsvc.server.kept import Content, KeptAnswers


class Maker:
    """Makes answers that are numbered; each waits until the test lets it end."""

    def __init__(self) -> None:
        self.made, self.free, self.began = 0, threading.Event(), threading.Event()
        self.free.set()

    def __call__(self) -> Content:
        self.made += 1
        number = self.made
        self.began.set()
        assert self.free.wait(30)
        return Content(str(number).encode() * 600, "text/plain")


class GoneError(LookupError):
    """An error that a test can refer to weakly."""


class Database:
    """A database whose state a test sets."""

    text = "1"

    def __call__(self) -> str:
        return self.text


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def answers(database: Database) -> Iterator[KeptAnswers]:
    answers = KeptAnswers(database)
    yield answers
    answers.close()


async def get(answers: KeptAnswers, key: str, make: Callable[[], Content]) -> str:
    return (await answers.get(key, answers.state(), make)).body[:1].decode()


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a thread of its own: a browser of other tests may have a loop in this one."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(asyncio.wait_for(test(**given), 60))).result()

    return run


async def began(make: Maker) -> None:
    assert await asyncio.to_thread(make.began.wait, 30)


async def busy(answers: KeptAnswers, key: str) -> tuple[Maker, asyncio.Task[str]]:
    """Begin an answer that keeps the server busy until the test frees its maker; return the maker and the reader."""
    slow = Maker()
    slow.free.clear()
    reader = asyncio.create_task(get(answers, key, slow))
    await began(slow)
    return slow, reader


@asynchronous
async def test_an_answer_is_kept_until_the_database_changes(answers, database):
    make = Maker()
    assert [await get(answers, "a", make) for _ in range(3)] == ["1", "1", "1"]
    database.text = "2"
    assert [await get(answers, "a", make) for _ in range(2)] == ["2", "2"]


@asynchronous
async def test_readers_who_ask_at_once_share_one_making(answers):
    make = Maker()
    make.free.clear()
    readers = [asyncio.create_task(get(answers, "a", make)) for _ in range(20)]
    await began(make)
    make.free.set()
    assert await asyncio.gather(*readers) == ["1"] * 20


@asynchronous
async def test_all_readers_get_an_error_and_the_next_one_has_a_new_try(answers):
    def fail() -> Content:
        raise LookupError("gone")

    readers = [asyncio.create_task(get(answers, "a", fail)) for _ in range(5)]
    errors = await asyncio.gather(*readers, return_exceptions=True)
    assert {type(error) for error in errors} == {LookupError}
    assert await get(answers, "a", Maker()) == "1"


@asynchronous
async def test_readers_share_what_is_being_made_while_the_database_changes(answers, database):
    slow, first = await busy(answers, "a")
    database.text = "2"
    second = asyncio.create_task(get(answers, "a", slow))
    await asyncio.sleep(0.05)
    slow.free.set()
    assert await asyncio.gather(first, second) == ["1", "1"]
    assert await get(answers, "a", slow) == "2", "it shows the database before the change"


@asynchronous
async def test_a_busy_server_answers_with_what_it_kept_and_makes_it_anew_later(answers, database):
    make = Maker()
    assert await get(answers, "a", make) == "1"
    database.text = "2"
    slow, other = await busy(answers, "b")
    assert await get(answers, "a", make) == "1"
    slow.free.set()
    await other
    assert await get(answers, "a", make) == "2"


@asynchronous
async def test_a_server_that_made_answers_for_too_much_of_its_time_is_busy_for_a_while(answers, database, monkeypatch):
    make = Maker()
    assert await get(answers, "a", make) == "1"
    database.text = "2"
    monkeypatch.setattr(kept, "BUSY_S", -1.0)
    assert await get(answers, "a", make) == "1"
    monkeypatch.setattr(kept, "BUSY_S", 2.0)
    assert await get(answers, "a", make) == "2"


@pytest.mark.parametrize("why", ["too old", "changed by the server"])
@asynchronous
async def test_even_a_busy_server_makes_an_answer_anew(answers, database, monkeypatch, why):
    make = Maker()
    assert await get(answers, "a", make) == "1"
    database.text = "2"
    slow, other = await busy(answers, "b")
    if why == "too old":
        monkeypatch.setattr(kept, "OLDEST_S", 0.0)
    else:
        answers.renew()
    assert await get(answers, "a", make) == "2"
    slow.free.set()
    await other


@asynchronous
async def test_errors_are_not_kept_and_push_no_answer_out(answers, monkeypatch):
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    make, raised = Maker(), []

    def fail() -> Content:
        error = GoneError("gone")
        raised.append(weakref.ref(error))
        raise error

    assert await get(answers, "a", make) == "1"
    for number in range(10):  # such as addresses of pages that do not exist
        with pytest.raises(LookupError):
            await get(answers, f"missing {number}", fail)
    assert await get(answers, "a", make) == "1"
    await get(answers, "b", Maker())
    gc.collect()
    assert [error() for error in raised] == [None] * 10


@asynchronous
async def test_a_reader_does_not_share_what_was_begun_before_a_change_of_the_server(answers):
    make = Maker()
    make.free.clear()
    before = asyncio.create_task(get(answers, "a", make))
    await began(make)
    answers.renew()
    after = asyncio.create_task(get(answers, "a", make))
    await asyncio.sleep(0.05)
    make.free.set()
    assert (await before, await after) == ("1", "2")
    assert await get(answers, "a", make) == "2"


@asynchronous
async def test_an_answer_that_takes_long_delays_no_other_answer(answers):
    slow, other = await busy(answers, "all")
    assert await get(answers, "a", Maker()) == "1"
    slow.free.set()
    await other


@asynchronous
async def test_answers_that_were_not_asked_for_longest_are_dropped_beyond_a_size_and_a_number(answers, monkeypatch):
    makers = {key: Maker() for key in "abc"}
    size = makers["a"]().size
    monkeypatch.setattr(kept, "MOST_BYTES", 2 * size)
    for key in ("a", "b", "a", "c", "a"):
        await get(answers, key, makers[key])
    assert [makers[key].made for key in "abc"] == [2, 1, 1]  # the first one of a measured the size
    await get(answers, "b", makers["b"])
    assert makers["b"].made == 2
    monkeypatch.setattr(kept, "MOST_BYTES", 100 * size)
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    make = Maker()
    for key in "defgd":
        await get(answers, key, make)
    assert make.made == 5, "d was dropped when g came"


@asynchronous
async def test_closing_drops_what_waits_and_does_not_wait_for_what_is_made(database, monkeypatch):
    monkeypatch.setattr(kept, "THREADS", 1)
    answers = KeptAnswers(database)
    make, never = Maker(), Maker()
    make.free.clear()
    first = asyncio.create_task(get(answers, "a", make))
    await began(make)
    second = asyncio.create_task(get(answers, "b", never))
    await asyncio.sleep(0)
    answers.close()
    make.free.set()
    assert await first == "1"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not never.made


def test_an_answer_is_compressed_for_those_who_accept_it():
    content = Content(b"a" * 5000, "text/plain")
    accepts = {"gzip": True, "br, gzip;q=0.5": True, "*": True, "gzip;q=0": False, "br, gzip; q=0.0": False, "": False}
    for accepted, packed in accepts.items():
        scope = {"type": "http", "method": "GET", "headers": [(b"accept-encoding", accepted.encode())]}
        answer = content.answer(Request(scope))
        assert answer.headers.get("content-encoding") == ("gzip" if packed else None), accepted
        scope["headers"].append((b"if-none-match", content.tag.encode()))
        unchanged = content.answer(Request(scope))
        assert (unchanged.status_code, unchanged.headers["vary"]) == (304, "Accept-Encoding"), accepted
