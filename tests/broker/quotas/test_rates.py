"""Throttle times: what Kafka's own classes say of the same loads (record_throttles.py)."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.frames import encode_response, with_throttle_time
from kafkalog_broker.protocol.request import ConnectionInfo, Request
from kafkalog_broker.quotas.client_quotas import Rate, TokenBucket, Windows
from tests.broker.quotas.record_throttles import RECORDED

CASES: list[dict[str, Any]] = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']} {case['count']} x {case['ms']} ms")
def test_throttle_times_are_those_of_kafka(case: dict[str, Any]) -> None:
    windows, limit = Windows(case["count"], case["ms"]), case["limit"]
    rate, bucket = Rate(windows), TokenBucket(windows)
    found = []
    for now_ms, value, _ in case["steps"]:
        if case["kind"] == "rate":
            rate.record(value, now_ms)
            found.append(rate.throttle_ms(limit, now_ms))
        else:
            bucket.record(value, limit, now_ms)
            found.append(bucket.throttle_ms(limit, now_ms))
    assert found == [wait for _, _, wait in case["steps"]]
    assert any(found)


def test_the_loads_show_both_kinds() -> None:
    assert {case["kind"] for case in CASES} == {"rate", "bucket"}


def test_nobody_waits_longer_than_an_answer_can_say() -> None:
    windows = Windows(11, 1000)
    for limit in (1e-310, 5e-324, 1e-9, 1.0):
        rate, bucket = Rate(windows), TokenBucket(windows)
        rate.record(1e12, 0)
        bucket.record(1e12, limit, 0)
        waits = [rate.throttle_ms(limit, 0), bucket.throttle_ms(limit, 0)]
        assert waits == [2**31 - 1] * 2
    request = Request(20, 6, 1, None, object(), ConnectionInfo())
    told = with_throttle_time(response_class(20, 6)(), waits[0])
    assert struct.pack(">i", 2**31 - 1) in bytes(encode_response(request, told)[0])


def test_what_was_taken_back_was_never_there() -> None:
    rate = Rate(Windows(11, 1000))
    rate.record(50, 0)
    rate.record(100_000, 10)
    rate.record(-100_000, 10)
    assert rate.measure(10) == (50 / 10.01, 10_010)
