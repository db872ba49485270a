"""What is gone is freed at once: a collection of everything comes once in millions of objects, so that what only it
would find piles up (FULL_COLLECTION_AFTER in cli.py)."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.net.connection import Connection
from kafkalog_broker.server import Server
from kafkalog_broker.storage.partition.log import Log
from tests.broker.storage.helpers.stored_logs import NOW, new_log, producer
from tests.broker.test_capacity import API_VERSIONS


@pytest.fixture(autouse=True)
def not_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def how_many(kind: type) -> int:
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.parametrize("end", [Log.close, Log.discard])
def test_closed_log_is_freed_without_garbage_collection(end, tmp_path: Path):
    before = how_many(Log)
    log = new_log(tmp_path)
    log.append(producer(0), NOW)
    log.local.roll(NOW)
    log.flush()
    assert how_many(Log) == before + 1
    end(log)
    del log
    assert how_many(Log) == before


async def connect_and_go(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(API_VERSIONS)
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    writer.close()
    await writer.wait_closed()


async def connections_left(directory: Path) -> int:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    server = await Server.start(BrokerConfig.from_properties(properties))
    try:
        (listener,) = server.broker.advertised
        before = how_many(Connection)
        for _ in range(3):
            await connect_and_go(listener.host, listener.port)
        async with asyncio.timeout(30):
            while any(not one.info.is_closed for one in gc.get_objects() if type(one) is Connection):
                await asyncio.sleep(0)
        for _ in range(10):  # what is called soon
            await asyncio.sleep(0)
        return how_many(Connection) - before
    finally:
        await server.stop()


def test_closed_connection_is_freed_without_garbage_collection(tmp_path: Path):
    assert asyncio.run(connections_left(tmp_path)) == 0
