"""With flush.messages=1 a Produce response waits for the disk, and one fdatasync serves all waiting producers."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from kafkalog_broker import api
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.testing_support.client_requests import frame_of
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_requests import PRODUCE, TOPIC, batch, produce_fields

PRODUCERS = 8
DEADLINE_S = 60


class Disk:
    """Counts fdatasync calls on `.log` files. The first one returns when `release` is called."""

    def __init__(self) -> None:
        self.syncs = 0
        self.is_syncing = threading.Event()
        self._may_return = threading.Event()
        self._fdatasync = os.fdatasync

    def fdatasync(self, fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            self.syncs += 1
            self.is_syncing.set()
            assert self._may_return.wait(DEADLINE_S)
        self._fdatasync(fd)

    def release(self) -> None:
        self._may_return.set()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to tell which file a descriptor is")
def test_produce_with_flush_messages_1_shares_one_fsync_among_all_waiting_producers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()

    async def produce(broker: BrokerInProcess) -> int:
        data = batch(1, -1, producer_id=-1, producer_epoch=-1, transactional=False)
        request = decode_request(frame_of(request_entity(PRODUCE, 9, produce_fields(None, 0, data), {})),
                                 ConnectionInfo())  # fmt: skip
        ((_, (partition,)),) = (await api.load_all()[PRODUCE].respond(request, broker.broker))[0]
        return int(partition.error_code)

    async def go(broker: BrokerInProcess) -> list[int]:
        log = broker.broker.log(TOPIC, 0)
        first = asyncio.ensure_future(produce(broker))
        assert await asyncio.to_thread(disk.is_syncing.wait, DEADLINE_S)
        others = [asyncio.ensure_future(produce(broker)) for _ in range(PRODUCERS - 1)]
        while log.log_end_offset < PRODUCERS:
            await asyncio.sleep(0)
        assert log.high_watermark == 0
        assert not any(task.done() for task in (first, *others))
        disk.release()
        return await asyncio.wait_for(asyncio.gather(first, *others), DEADLINE_S)

    with BrokerInProcess(tmp_path / "data") as broker:
        broker.run(broker.broker.ensure_topic(TOPIC, 1, {"flush.messages": "1"}))
        monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
        assert broker.run(go(broker)) == [ErrorCode.none] * PRODUCERS
        assert disk.syncs == 2, "the first one for the first producer, the second one for all others"
        assert broker.broker.log(TOPIC, 0).high_watermark == PRODUCERS
