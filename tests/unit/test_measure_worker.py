"""The worker opens the device that it is told, and the one board of it is the only one that CUDA sees."""

import os

import pytest

from perfsvc import codec
from perfsvc.measure import worker
from perfsvc.measure.job import Open, Request
from perfsvc.measure.wire import Frame


@pytest.mark.parametrize(
    ("opening", "visible"), [(Open("cuda:GPU-1", "GPU-1"), "GPU-1"), (Open("cpu"), "0,1")], ids=["cuda", "cpu"]
)
def test_the_driver_starts_with_the_board_alone(monkeypatch, opening, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(worker, "open_device", lambda *opened: (*opened, os.environ["CUDA_VISIBLE_DEVICES"]))
    opened = worker._open(Frame(codec.encode(Request(opening)), (b"cubin",), ()))
    assert opened == (opening.device, b"cubin", visible)
