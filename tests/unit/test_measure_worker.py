"""The worker before it serves: the one board that it is told of is the only one that CUDA sees."""

import os

from perfsvc import codec
from perfsvc.measure import worker
from perfsvc.measure.job import Open, Request
from perfsvc.measure.wire import Frame


def begun(monkeypatch, opening):
    """What the driver finds in the environment when it starts."""
    seen = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(worker, "Board", lambda uuid: uuid)
    monkeypatch.setattr(worker, "retain_context", lambda: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]))
    board = worker._begin(Frame(codec.encode(Request(opening)), (b"",), ()))
    return seen, board


def test_the_driver_starts_with_the_board_alone(monkeypatch):
    assert begun(monkeypatch, Open("cuda:GPU-1", "GPU-1")) == (["GPU-1"], "GPU-1")


def test_no_driver_starts_for_another_device(monkeypatch):
    assert begun(monkeypatch, Open("cpu")) == ([], None)
