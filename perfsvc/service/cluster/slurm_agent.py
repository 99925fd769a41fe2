"""The agent in a Slurm job: it takes orders from a file of the shared folder, and sends replies in another one."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from perfsvc.model import codec
from perfsvc.service.cluster.agent import Agent
from perfsvc.service.cluster.messages import AgentOrder, AgentReply
from perfsvc.service.cluster.shared_folder import BlobFolder, Inbox, LifeSigns, Outbox

ORDERS, REPLIES = ".orders", ".replies"
"""The endings of the names of the two files of a job."""
BLOBS = "blobs"
LOOK_S = 0.25
"""Seconds between two looks at the orders while there is no news."""
SETTLE_S = 0.05
"""Seconds between news and sending it. Slurm ends a job with SIGTERM to all of its processes. The agent must receive
its own signal before it sends that a worker has died, which would look like a fault of the case."""
SILENT_COMMAND_S = 600.0
"""Seconds without a sign of life of the command, after which the agent ends."""


def serve(folder: str, name: str, spec: str) -> None:
    """Be the agent of the GPU of this job until Slurm ends the job, or until the command is gone.

    Args:
        folder: the folder of the run.
        name: the name of the job's files.
        spec: the device, such as ``cuda``.
    """
    signal.signal(signal.SIGTERM, _end)  # submitit ignores this signal
    here = Path(folder)
    orders, replies, blobs = (
        Inbox(here / f"{name}{ORDERS}"),
        Outbox(here / f"{name}{REPLIES}"),
        BlobFolder(here / BLOBS),
    )
    replies.show_life()  # the command counts the seconds of silence from here on
    agent = Agent()
    try:
        replies.send([codec.encode(AgentReply(facts=agent.facts(spec)))])
        for _ in _while_the_command_lives(here / f"{name}{ORDERS}"):
            # Not in a thread of its own: an agent that hangs must be noticed.
            replies.show_life()
            for text in orders.read():
                _obey(agent, codec.decode(AgentOrder, text), replies, blobs)
            if packets := agent.take(LOOK_S):
                time.sleep(SETTLE_S)
                for _, files in packets:
                    blobs.write(files)
                replies.send(codec.encode(AgentReply(news=news, files=tuple(files))) for news, files in packets)
    finally:
        agent.end(0.0)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit


def _while_the_command_lives(orders: Path) -> Iterator[None]:
    """Yield until the command has removed its orders, or has been silent for ``SILENT_COMMAND_S`` seconds."""
    life_signs = LifeSigns(SILENT_COMMAND_S)
    with contextlib.suppress(FileNotFoundError):
        while not life_signs.are_missing(orders.stat().st_mtime_ns):
            yield


def _obey(agent: Agent, order: AgentOrder, replies: Outbox, blobs: BlobFolder) -> None:
    if order.parts_of:
        replies.send([codec.encode(AgentReply(parts=agent.parts(order.parts_of, order.benches)))])
    elif order.share:
        agent.begin(order.share, blobs.read(agent.missing(order.blobs)))
    elif order.drop:
        agent.drop(order.drop)
    elif order.stop:
        agent.stop()
