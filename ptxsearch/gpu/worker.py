"""The child process that owns a GPU context and does what its parent asks, one job at a time.

Whatever a kernel does happens here, so that killing this process ends it. After a fault that
loses the context the reply says so and the process ends. `process` starts it with
FD INDEX DRIVER; DRIVER names the driver class as module:class.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ptxsearch.errors import PtxsearchError
from ptxsearch.evaluation import Failure
from ptxsearch.gpu.channel import Channel, Closed, Reply
from ptxsearch.gpu.checks import Checks, check
from ptxsearch.gpu.driver import Driver, DriverError
from ptxsearch.gpu.faults import failure_of, is_final, timed_out
from ptxsearch.gpu.rounds import Contest, contest
from ptxsearch.gpu.session import Session
from ptxsearch.gpu.stress import stress, warm_times
from ptxsearch.gpu.timing import Hang

__all__ = ["serve"]


def serve(channel: Channel, driver: Driver) -> None:
    """Answer jobs until the parent closes the channel or the context is lost."""
    channel.send(Reply(driver.properties))
    opening = channel.receive()
    session = Session.open(driver, **opening)
    channel.send(Reply(session.probe()))
    jobs: dict[str, Callable[..., Any]] = {
        "hold": session.hold,
        "drop": session.drop,
        "check": lambda **plan: check(session, Checks(**plan)),
        "probe": session.probe,
        "time": lambda **plan: contest(session, Contest(**plan)),
        "stress": lambda **plan: stress(session, **plan),
        "warm": lambda **plan: warm_times(session, **plan),
    }
    while True:
        message = channel.receive()
        session.inspector.arena = channel.arena()
        reply = answer(session, jobs[message.pop("job")], message)
        channel.send(reply, session.inspector.arena)
        if reply.last:
            return


def answer(session: Session, job: Callable[..., Any], message: dict[str, Any]) -> Reply:
    """The reply to one job; a fault of a kernel or of the machine is a Failure in it."""
    try:
        value = job(**message)
    except Hang as hang:
        return Reply(timed_out(hang.seconds), last=True)
    except DriverError as error:
        return Reply(failure_of(error), last=is_final(error))
    except PtxsearchError as error:
        return Reply(error=str(error))
    except Exception:  # noqa: BLE001 - the process boundary: the parent gets the text
        return Reply(error=traceback.format_exc(limit=8), last=True)
    hung = isinstance(value, Failure) and value.fault is not None and value.fault.kind == "timeout"
    return Reply(value, last=hung or session.sampler.lost)


def _end_with(descriptor: int) -> None:
    """End this process when the parent closes its end or dies, whatever is running.

    A parent-death signal would come when the thread that started us ends, not its process.
    """
    parent = select.poll()
    parent.register(descriptor, select.POLLRDHUP)
    parent.poll()
    os._exit(0)


def main(arguments: list[str]) -> None:
    """Serve on the inherited descriptor; die with the parent."""
    descriptor, index, name = int(arguments[0]), int(arguments[1]), arguments[2]
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    module, _, kind = name.partition(":")
    try:
        driver: Driver = getattr(importlib.import_module(module), kind)(index)
        serve(channel, driver)
    except Closed:
        pass
    except PtxsearchError as error:
        channel.send(Reply(error=str(error), last=True))
    # A context with a hung kernel cannot be torn down: leave without cleaning up.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
