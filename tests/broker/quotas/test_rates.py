"""Throttle times, compared with those of Kafka's own classes under the same loads (record_throttles.py)."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.protocol.responses import with_throttle_time
from kafkalog_broker.quotas.rates import Rate, TokenBucket, Windows
from tests.broker.quotas.record_throttles import RECORDED

CASES: list[dict[str, Any]] = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']} {case['count']} x {case['ms']} ms")
def test_throttle_times_equal_those_of_kafka(case: dict[str, Any]) -> None:
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


def test_recorded_loads_cover_rates_and_buckets() -> None:
    assert {case["kind"] for case in CASES} == {"rate", "bucket"}


def test_throttle_time_is_at_most_the_int32_of_a_response() -> None:
    windows = Windows(11, 1000)
    for limit in (1e-310, 5e-324, 1e-9, 1.0):
        rate, bucket = Rate(windows), TokenBucket(windows)
        rate.record(1e12, 0)
        bucket.record(1e12, limit, 0)
        waits = [rate.throttle_ms(limit, 0), bucket.throttle_ms(limit, 0)]
        assert waits == [2**31 - 1] * 2
    request = Request(20, 6, 1, None, object(), ConnectionInfo())
    response = with_throttle_time(response_class(20, 6)(), waits[0])
    assert struct.pack(">i", 2**31 - 1) in bytes(encode_response(request, response)[0])


def test_negative_value_takes_back_an_earlier_one() -> None:
    rate = Rate(Windows(11, 1000))
    rate.record(50, 0)
    rate.record(100_000, 10)
    rate.record(-100_000, 10)
    assert rate.measure(10) == (50 / 10.01, 10_010)
