"""A Fetch that waits for committed records is answered when the transaction before them ends."""

from __future__ import annotations

import asyncio

import pytest

from kafkalog_broker import api
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.testing_support.client_requests import frame_of
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_requests import (
    END,
    FETCH,
    FIND_COORDINATOR,
    INIT,
    PRODUCE,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TIMEOUT_MS,
    TOPIC,
    batch,
    fetch_fields,
    produce_fields,
)

LONG_MS = 600_000  # only the end of the transaction can end the wait


def handled(broker, key, version, fields):
    """The handler of a request, not yet run."""
    ids = {TOPIC: broker.topics.get(TOPIC).id}
    request = decode_request(frame_of(request_entity(key, version, fields, ids)), ConnectionInfo())
    return api.load_all()[key].respond(request, broker)


def records_of(answer):
    return b"".join(answer.responses[0].partitions[0].records)


@pytest.fixture(params=["1", "9223372036854775807"], ids=["flush.messages=1", "default flush policy"])
def broker(request, tmp_path):
    with BrokerInProcess(tmp_path / "data", {"log.flush.interval.messages": request.param}) as running:
        running.run(running.broker.ensure_topic(TOPIC, 1, {}))
        running.run(handled(running.broker, FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["any"]}))
        yield running


@pytest.mark.parametrize("committed", [True, False])
def test_waiting_fetch_returns_when_the_transaction_ends(broker, committed):
    async def go():
        init = {"transactional_id": "t", "transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        begun = await handled(broker.broker, INIT, 5, init)
        who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        records = batch(3, 0, transactional=True, **who)
        await handled(broker.broker, PRODUCE, 12, produce_fields("t", 0, records))
        wait = {"max_wait": LONG_MS, "min_bytes": 1}
        at_once = handled(broker.broker, FETCH, 12, fetch_fields(0, 0, READ_UNCOMMITTED) | wait)
        assert records_of(await asyncio.wait_for(at_once, 30)).find(records[21:]) > 0
        fetch = asyncio.ensure_future(handled(broker.broker, FETCH, 12, fetch_fields(0, 0, READ_COMMITTED) | wait))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not fetch.done()
        end = {"transactional_id": "t", "committed": committed, **who}
        await handled(broker.broker, END, 5, end)
        return records, records_of(await asyncio.wait_for(fetch, 30))

    # Of aborted records too: they are named, not cut out. The broker stamps what lies before byte 21.
    records, answer = broker.run(go())
    assert answer.find(records[21:]) > 0


def test_end_txn_responds_when_its_markers_are_readable(broker):
    async def go():
        init = {"transactional_id": "t", "transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
        begun = await handled(broker.broker, INIT, 5, init)
        who = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        await handled(broker.broker, PRODUCE, 12, produce_fields("t", 0, batch(3, 0, transactional=True, **who)))
        await handled(broker.broker, END, 5, {"transactional_id": "t", "committed": True, **who})
        log = broker.broker.log(TOPIC, 0)
        return log.last_stable_offset, log.high_watermark, log.log_end_offset

    assert broker.run(go()) == (4, 4, 4)
