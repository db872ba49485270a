"""Number of bucket requests that a remote read of the broker sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.remote.helpers.tiered_broker import configs, local_logs, produce, s3_properties, wait_until
from tests.log.helpers.plain_decoder import decode_batches
from tests.log.tiered.aiven_writer import KEY_ID, KEYS
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "encrypted": {
        "compression.enabled": "true", "encryption.enabled": "true", "encryption.key.pairs": KEY_ID,
        "encryption.key.pair.id": KEY_ID, f"encryption.key.pairs.{KEY_ID}.private.key.file": KEYS / f"{KEY_ID}.pem",
    },
}  # fmt: skip
SEGMENT = 15
"""Records."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """Before a server with a bucket for each of WAYS."""
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server, FaultProxy(server.endpoint) as made:
        for way in WAYS:
            server.make_bucket(way)
        made.server = server  # type: ignore[attr-defined]
        yield made


def offsets_read(broker: RunningBroker, offset: int, most: int, level: int) -> list[int]:
    """Return the offsets of the records in one fetch with this isolation level."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": most, "current_leader_epoch": -1,
                 "last_fetched_epoch": -1, "log_start_offset": -1}  # fmt: skip
    asked: dict[str, Any] = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": level,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": "orders", "partitions": [partition]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    (found,) = broker.ask(request_entity(1, 12, asked, {})).responses[0].partitions
    assert not found.error_code
    return [record.offset for batch in decode_batches(bytes(found.records)) for record in batch.records]


@pytest.mark.parametrize("way", WAYS)
def test_first_remote_read_sends_three_requests_and_later_reads_none(
    proxy: FaultProxy, way: str, tmp_path: Path
) -> None:
    properties = {f"rsm.config.{name}": value for name, value in WAYS[way].items()}
    properties |= s3_properties(proxy.server, proxy.endpoint, way)  # type: ignore[attr-defined]
    properties |= {"remote.fetch.max.wait.ms": 60_000}
    topics = {"orders": {"partitions": 1, **configs()}}
    with running_broker(properties, topics=topics, log_dir=tmp_path / "data", tiered=True) as broker:
        produce(broker.bootstrap, "orders", range(100))
        wait_until(lambda: len(local_logs(broker, "orders")) == 1, broker.log()[-3000:])
        for begin, level in ((0, 0), (37, 1), (67, 0)):
            broker.stop()
            broker.start()
            proxy.forget()
            last = (begin // SEGMENT + 1) * SEGMENT - 1
            assert offsets_read(broker, begin, 1, level) == [begin]
            assert [(seen.method, Path(seen.path).suffix) for seen in proxy.seen] == [
                ("GET", ".rsm-manifest"), ("GET", ".indexes"), ("GET", ".log"),
            ]  # fmt: skip
            proxy.forget()
            assert offsets_read(broker, begin + 1, 1 << 20, level) == list(range(begin + 1, last + 1))
            assert offsets_read(broker, begin, 1 << 20, 1 - level) == list(range(begin, last + 1))
            assert proxy.count() == 0
            assert offsets_read(broker, last + 1, 1, level) == [last + 1]
            assert proxy.count() == 3
