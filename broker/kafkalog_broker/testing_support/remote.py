"""The test's end of the channel to its broker: `broker.faults` and `broker.clock`."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO, Literal

from kafkalog_broker.coordinator.coordinator_timer import Scheduler, TimerHandle
from kafkalog_broker.runtime.clock import Clock

ANSWER_S = 60.0  # a broker that does not answer in that time has ended, or hangs


class Channel:
    """Connection to the control port; one exchange at a time. Raises RuntimeError while the broker is not running,
    ValueError for what it refuses."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._answers: BinaryIO | None = None

    def open(self) -> socket.socket:
        """A new channel; its other end, which the broker is to inherit and the caller to close."""
        self.close()
        self._socket, others = socket.socketpair()
        self._socket.settimeout(ANSWER_S)
        self._answers = self._socket.makefile("rb")
        return others

    def close(self) -> None:
        for end in (self._answers, self._socket):
            if end is not None:
                end.close()
        self._socket = self._answers = None

    def ask(self, do: str, **named: Any) -> Any:
        if self._socket is None or self._answers is None:
            raise RuntimeError("the broker is not running, or was started without `control`")
        try:
            self._socket.sendall(json.dumps({"do": do, **named}).encode() + b"\n")
            line = self._answers.readline()
        except OSError as error:
            raise RuntimeError(f"the broker does not answer: {error}") from error
        if not line.endswith(b"\n"):
            raise RuntimeError("the broker has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["result"]


class Fault:
    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    @property
    def met(self) -> int:
        """How many requests it has happened to."""
        count: int = self._channel.ask("met", fault=self._number)
        return count

    def remove(self) -> None:
        """It happens no more."""
        self._channel.ask("remove_fault", fault=self._number)


class Faults:
    """Faults of the broker. They last until they have happened, are removed, or the broker stops."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def add(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        error: int | None = None,
        delay: float | timedelta = 0,
        drop: Literal["before", "after"] | None = None,
        skip: int = 0,
        times: int | None = 1,
    ) -> Fault:
        """Let something happen to the next `times` requests (None: to all), after `skip` that are let through.

        api: its name in Kafka, "Produce"; None: any. topic, client_id: only to requests that name them.
        error: an ErrorCode, which is the answer; nothing else happens then. delay: seconds before the request is
        handled. drop: the connection is closed instead of an answer, "before" anything has happened or "after" it has.

        Raises ValueError for what cannot be, RuntimeError while the broker is not running.
        """
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        asked = {
            "api": api, "topic": topic, "client_id": client_id, "error": None if error is None else int(error),
            "delay_ms": round(seconds * 1000), "drop": drop, "skip": skip, "times": times,
        }  # fmt: skip
        return Fault(self._channel, self._channel.ask("add_fault", **asked))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._channel.ask("clear_faults")


class RemoteClock:
    """The broker's clock, ahead of this machine's by what was added to it: also after a restart."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._added_ms = 0

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for the broker. On return what has become due has begun: retention, transactions and sessions
        that have timed out, offsets and producers that have expired. Clients do not notice; time never goes back."""
        ms = round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
        if ms < 0:
            raise ValueError("time never goes back")
        self._channel.ask("advance", ms=ms)
        self._added_ms += ms

    def restore(self) -> None:
        """After a restart."""
        if self._added_ms:
            self._channel.ask("advance", ms=self._added_ms)


# Requests over a socket, and their responses.


def ask(connection: socket.socket, request: Any) -> Any:
    """The response to a request of `protocol/api_messages.py`. Raises OSError, also if the broker closes the
    connection."""
    from kafkalog_broker.protocol.client_messages import decode_response

    return decode_response(request.__api_key__, request.__version__, exchange(connection, request))


def exchange(connection: socket.socket, request: Any) -> bytes:
    """Ask, and return the response as bytes, from its header on."""
    frame = frame_of(request)
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    return _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])


def frame_of(request: Any) -> bytes:
    """Frame of a request: with a header, without the size in front."""
    from kafkalog_broker.protocol.client_messages import encode_client_request

    return encode_client_request(request, "kafkalog-testing")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection instead of answering")
        data += more
    return data


# A port that is free for one broker and for nobody else, also between a kill and the next start.
#
# A port that was found free and let go may be taken before it is used: by another server that asks for any, or by a
# client's connection, even by one to that very port (a connection to itself).

HOST = "127.0.0.1"


def kept_port(owner: object) -> int:
    """A port of HOST that nobody gets who does not ask for it, as long as `owner` lives: bound, and never listened at.
    On Linux a server can bind and listen beside that where both set SO_REUSEADDR, as brokers do, this one and Java's.
    Elsewhere it could not: there the port is only free at this moment."""
    with socket.socket() as kept:
        if sys.platform == "linux":
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, 0))
        port: int = kept.getsockname()[1]
        if sys.platform == "linux":
            weakref.finalize(owner, os.close, kept.detach())
    return port


# A clock that a test moves on, and timers that follow it.


class MovedClock:
    """`real`, and what a test has added to it. Time passes by itself too."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self._added_ms = 0

    def now_ms(self) -> int:
        return self._real.now_ms() + self._added_ms

    def monotonic_ms(self) -> int:
        return self._real.monotonic_ms() + self._added_ms

    def advance(self, ms: int) -> None:
        self._added_ms += ms


class MovedTimers:
    """A Scheduler: timers of `schedule`, which is one itself, that come due as the clock is moved."""

    def __init__(self, clock: Clock, schedule: Scheduler) -> None:
        self.clock, self.schedule = clock, schedule
        self.armed: dict[_MovedTimer, TimerHandle] = {}

    def __call__(self, delay_ms: int, call: Callable[[], None]) -> TimerHandle:
        timer = _MovedTimer(self, self.clock.monotonic_ms() + delay_ms, call)
        self.armed[timer] = self.schedule(delay_ms, timer.run)
        return timer

    def moved(self) -> None:
        """The clock was moved: run what is due by now, the earliest first, and hurry the others."""
        now_ms = self.clock.monotonic_ms()
        for timer in sorted(self.armed, key=lambda timer: timer.due_ms):
            if timer not in self.armed:
                continue  # one that ran before has cancelled it
            if timer.due_ms <= now_ms:
                timer.run()
            else:
                self.armed[timer].cancel()
                self.armed[timer] = self.schedule(timer.due_ms - now_ms, timer.run)


@dataclass(frozen=True, eq=False)
class _MovedTimer:
    timers: MovedTimers
    due_ms: int
    call: Callable[[], None]

    def run(self) -> None:
        self.cancel()
        self.call()

    def cancel(self) -> None:
        if self in self.timers.armed:
            self.timers.armed.pop(self).cancel()
