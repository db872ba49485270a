"""The test's end of the channel to its broker (`control.py`): `broker.faults` and `broker.clock`."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from typing import Any, BinaryIO, Literal

RESPONSE_TIMEOUT_S = 60.0  # time limit of a response


class Channel:
    """Channel to the broker process. Sends one command at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._responses: BinaryIO | None = None

    def open(self) -> socket.socket:
        """Open a new channel, and return its other end, which the broker inherits and the caller closes."""
        self.close()
        self._socket, other_end = socket.socketpair()
        self._socket.settimeout(RESPONSE_TIMEOUT_S)
        self._responses = self._socket.makefile("rb")
        return other_end

    def close(self) -> None:
        """Close the channel. Idempotent."""
        for end in (self._responses, self._socket):
            if end is not None:
                end.close()
        self._socket = self._responses = None

    def ask(self, do: str, **named: Any) -> Any:
        """Send a command and return its result.

        Raises:
            RuntimeError: If the broker is not running.
            ValueError: If the broker refuses the command.
        """
        if self._socket is None or self._responses is None:
            raise RuntimeError("the broker is not running, or was started without `control`")
        try:
            self._socket.sendall(json.dumps({"do": do, **named}).encode() + b"\n")
            line = self._responses.readline()
        except OSError as error:
            raise RuntimeError(f"the broker does not respond: {error}") from error
        if not line.endswith(b"\n"):
            raise RuntimeError("the broker has ended")
        response = json.loads(line)
        if "error" in response:
            raise ValueError(response["error"])
        return response["result"]


class Fault:
    """A fault that was added to the broker."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel = channel
        self._number = number

    @property
    def met(self) -> int:
        """Number of requests that it has affected."""
        count: int = self._channel.ask("met", fault=self._number)
        return count

    def remove(self) -> None:
        """Remove the fault."""
        self._channel.ask("remove_fault", fault=self._number)


class Faults:
    """Faults of the broker. A fault ends after it has affected `times` requests, or when it is removed."""

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
        """Add a fault that affects the next matching requests.

        Args:
            api: Name of the API, such as "Produce"; None for any.
            topic: Affect only requests that name this topic.
            client_id: Affect only requests of this client.
            error: ErrorCode of the response; the request is not handled.
            delay: Seconds, or a timedelta, before the request is handled.
            drop: Close the connection instead of responding, "before" or "after" the request is handled.
            skip: Number of matching requests that are handled normally first.
            times: Number of requests to affect; None for all.

        Raises:
            ValueError: If such a fault is not possible.
            RuntimeError: If the broker is not running.
        """
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        fault = {
            "api": api, "topic": topic, "client_id": client_id, "error": None if error is None else int(error),
            "delay_ms": round(seconds * 1000), "drop": drop, "skip": skip, "times": times,
        }  # fmt: skip
        return Fault(self._channel, self._channel.ask("add_fault", **fault))

    def clear(self) -> None:
        """Remove all faults."""
        self._channel.ask("clear_faults")


class RemoteClock:
    """The broker's clock, which `advance` sets ahead of this machine's clock. A restart keeps the difference."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._added_ms = 0

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the broker's clock. Clients do not notice.

        On return, all work that has become due has begun: retention, timeouts of transactions and sessions, expiry of
        offsets and producers.

        Raises:
            ValueError: If the sum is negative.
            RuntimeError: If the broker is not running.
        """
        ms = round(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
        if ms < 0:
            raise ValueError("the clock cannot be set back")
        self._channel.ask("advance", ms=ms)
        self._added_ms += ms

    def restore(self) -> None:
        """Advance the clock of a restarted broker by the time added so far."""
        if self._added_ms:
            self._channel.ask("advance", ms=self._added_ms)
