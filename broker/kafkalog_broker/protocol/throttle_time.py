"""throttle_time_ms put into a response that is made already."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kio.static.primitive import i32Timedelta

from kafkalog_broker.protocol.api_registry import Encoded, Request

_I32 = struct.Struct(">i")
_FIRST_VERSION = {0: 1, 1: 1, 3: 3, 9: 3, 32: 1, 65: 0}
"""Of APIs whose answers are written by hand: the first version that has the field."""
_PRODUCE = 0
_PRODUCE_FLEXIBLE = 9


def with_throttle_time(request: Request, response: Any, throttle_ms: int) -> Any:
    """The same response, a kio entity or Encoded; as it is where its version has no such field. throttle_ms: below
    2**31, as quotas/rates.py has it."""
    if not isinstance(response, Encoded):
        if not hasattr(response, "throttle_time"):
            return response
        return replace(response, throttle_time=i32Timedelta.parse(timedelta(milliseconds=throttle_ms)))
    first = _FIRST_VERSION.get(request.api_key)
    if first is None or request.version < first:
        return response
    field = _I32.pack(throttle_ms)
    if request.api_key == _PRODUCE:  # at the end, before the tagged fields, of which there are none
        after = 1 if request.version >= _PRODUCE_FLEXIBLE else 0
        body = bytearray(response[-1])
        body[len(body) - 4 - after : len(body) - after] = field
        return Encoded([*response[:-1], bytes(body)])
    body = bytearray(response[0])
    body[:4] = field
    return Encoded([bytes(body), *response[1:]])
