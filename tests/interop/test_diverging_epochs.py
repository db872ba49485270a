"""Fetch with a last fetched epoch (KIP-595): our broker on mirrored logs responds as the source Kafka."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.source import Source
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_broker.protocol.mirror_fetch_messages import SourceFetchPartition, SourceFetchRequest
from kafkalog_broker.testing import RunningBroker
from tests.broker.mirror.helpers.mirrors import mirror_once
from tests.interop.real_kafka import RealKafka, available
from tests.interop.test_mirror import epochs, send, until

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


async def answers(bootstrap: str, topic_id: uuid.UUID, asked: list[tuple[int, int]], version: int) -> list[Any]:
    """(error, high watermark, whether there are records, diverging epoch and end) for (offset, last epoch) pairs."""
    source = Source(parse_bootstrap(bootstrap), ClientSettings())
    connection = await source.connect(parse_bootstrap(bootstrap)[0])
    found = []
    for offset, epoch in asked:
        wanted = SourceFetchPartition(topic_id, 0, offset, 1 << 20, -1, epoch)
        call = SourceFetchRequest((0, -1), [(("orders", 0), wanted)], [], 0, 0, 1 << 20)
        (one,) = (await connection.fetch(call, version, len(call.partitions))).partitions
        found.append((one.error, one.high_watermark, len(one.records) > 0, one.diverging))
    await connection.aclose()
    return found


def test_diverging_epochs_equal_those_of_kafka(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka", short_lived=True) as kafka:
        kafka.create_topic("orders")
        for round_ in range(3):
            send(kafka.bootstrap, "orders", 30, first=100 * round_)
            if round_ < 2:
                kafka.stop()
                kafka.start()
        mirror = tmp_path / "mirror"
        mirror_once(kafka.bootstrap, mirror, "orders")
        found = epochs(mirror, "orders")
        assert len(found) == 3
        last = found[-1][0]
        offsets = sorted({0, 90, 91, 100, *(start + move for _, start in found for move in (0, 1, 15))})
        asked = list(itertools.product(offsets, range(-1, last + 2)))
        with RunningBroker(mirror, arguments=["--mirror-of", kafka.bootstrap]) as ours:
            topic_id = asyncio.run(_topic_id(kafka.bootstrap))
            until(lambda: asyncio.run(_topic_id(ours.bootstrap)) == topic_id)
            for version in (12, 13):
                theirs = asyncio.run(answers(kafka.bootstrap, topic_id, asked, version))
                assert asyncio.run(answers(ours.bootstrap, topic_id, asked, version)) == theirs
        assert {answer[3] is not None for answer in theirs} == {True, False}
        assert {answer[0] for answer in theirs} == {0, 1}


async def _topic_id(bootstrap: str) -> uuid.UUID:
    source = Source(parse_bootstrap(bootstrap), ClientSettings())
    try:
        return (await source.metadata()).topics["orders"].id
    finally:
        await source.aclose()
