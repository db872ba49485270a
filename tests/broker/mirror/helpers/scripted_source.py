"""A source cluster of one node, correct except for the false responses that a test sets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import io
import typing
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.broker.protocol.helpers.kio_messages import kio_request_class, kio_response_class

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, EPOCH_ENDS = 1, 2, 3, 18, 23
SERVED = {FETCH: (4, 12), LIST_OFFSETS: (1, 7), METADATA: (0, 12), API_VERSIONS: (0, 0), EPOCH_ENDS: (0, 4)}
EPOCH = 3
WAIT_S = 0.02

Plain = dict[str, Any]


@dataclasses.dataclass
class ScriptedTopic:
    """batches: of each partition, (base offset, last offset, bytes). start: the log start offset of all of them."""

    batches: list[list[tuple[int, int, bytes]]]
    id: uuid.UUID = dataclasses.field(default_factory=uuid.uuid4)
    start: int = 0
    is_internal: bool = False

    def end(self, partition: int) -> int:
        log = self.batches[partition]
        return log[-1][1] + 1 if log else self.start


class ScriptedSource:
    """lies: by API key, what is done to each answer, as plain data, before it is written. spoils: by API key, what is
    done to its bytes. asked: how often each API was."""

    def __init__(self, topics: dict[str, ScriptedTopic], *, fetch: int = 12) -> None:
        self.topics = topics
        self.lies: dict[int, Callable[[Plain], None]] = {}
        self.spoils: dict[int, Callable[[bytes], bytes]] = {}
        self.asked: dict[int, int] = dict.fromkeys(SERVED, 0)
        self.served = {**SERVED, FETCH: (4, fetch)}
        self.port = 0
        self._answers = {
            FETCH: self._fetch, LIST_OFFSETS: self._offsets, METADATA: self._metadata, EPOCH_ENDS: self._epoch_ends,
            API_VERSIONS: self._versions,
        }  # fmt: skip

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        connected: set[asyncio.Task[None]] = set()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.add(asyncio.create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(begin, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in connected:
                task.cancel()
            await asyncio.gather(*connected, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError), contextlib.closing(writer):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                version = 0 if key == API_VERSIONS else version
                self.asked[key] += 1
                made: Any = kio_request_class(key, version)
                _, at = entity_reader(made.__header_schema__)(frame, 0)
                plain = self._answers[key](entity_reader(made)(frame, at)[0])
                self.lies.get(key, _as_it_is)(plain)
                if key == FETCH and not any(
                    one["records"] for topic in plain["responses"] for one in topic["partitions"]
                ):
                    await asyncio.sleep(WAIT_S)
                answer = self.spoils.get(key, _as_it_is)(frame[4:8] + encoded(key, version, plain))
                writer.write(len(answer).to_bytes(4, "big") + answer)
                await writer.drain()

    # ---- honest answers

    def _versions(self, _: Any) -> Plain:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.served.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, _: Any) -> Plain:
        def partition(index: int) -> Plain:
            return {
                "error_code": 0, "partition_index": index, "leader_id": 1, "leader_epoch": EPOCH, "replica_nodes": [1],
                "isr_nodes": [1], "offline_replicas": [],
            }  # fmt: skip

        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port, "rack": None}],
            "cluster_id": "scripted", "controller_id": 1,
            "topics": [
                {
                    "error_code": 0, "name": name, "topic_id": topic.id, "is_internal": topic.is_internal,
                    "partitions": [partition(index) for index in range(len(topic.batches))],
                    "topic_authorized_operations": 0,
                }
                for name, topic in self.topics.items()
            ],
        }  # fmt: skip

    def _offsets(self, request: Any) -> Plain:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": one.partition_index, "error_code": 0, "timestamp": -1,
                            "leader_epoch": EPOCH,
                            "offset": self.topics[topic.name].start
                            if one.timestamp == -2
                            else self.topics[topic.name].end(one.partition_index),
                        }
                        for one in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }  # fmt: skip

    def _epoch_ends(self, request: Any) -> Plain:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [
                        {
                            "error_code": 0, "partition": one.partition, "leader_epoch": EPOCH,
                            "end_offset": self.topics[topic.topic].end(one.partition),
                        }
                        for one in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }  # fmt: skip

    def _fetch(self, request: Any) -> Plain:
        def partition(name: str, one: Any) -> Plain:
            topic, offset = self.topics[name], one.fetch_offset
            end = topic.end(one.partition)
            records = next((data for base, _, data in topic.batches[one.partition] if base >= offset), b"")
            return {
                "partition_index": one.partition, "error_code": 0 if topic.start <= offset <= end else 1,
                "high_watermark": end, "last_stable_offset": end, "log_start_offset": topic.start,
                "aborted_transactions": [], "preferred_read_replica": -1, "records": records,
            }  # fmt: skip

        return {
            "error_code": 0, "session_id": 0,
            "responses": [
                {"topic": topic.topic, "partitions": [partition(topic.topic, one) for one in topic.partitions]}
                for topic in request.topics
            ],
        }  # fmt: skip


def _as_it_is(answer: Any) -> Any:
    return answer


def encoded(key: int, version: int, plain: Plain) -> bytes:
    """A response from behind its correlation id."""
    made: Any = kio_response_class(key, version)
    body = io.BytesIO()
    body.write(b"\0" if made.__header_schema__.__version__ else b"")
    entity_writer(made)(body, _entity(made, plain))
    return body.getvalue()


def _entity(made: Any, plain: Plain) -> Any:
    """Fields that are not given keep their defaults."""
    fields: Plain = {"throttle_time": datetime.timedelta()} if hasattr(made, "__api_key__") else {}
    for field in dataclasses.fields(made):
        if field.name not in plain:
            continue
        value = plain[field.name]
        if field.type is ErrorCode:
            value = ErrorCode(value)
        elif isinstance(value, list):
            (element, _) = typing.get_args(field.type)
            value = tuple(_entity(element, one) if dataclasses.is_dataclass(element) else one for one in value)
        elif isinstance(value, dict):
            value = _entity(field.type, value)
        fields[field.name] = value
    known = {field.name for field in dataclasses.fields(made)}
    return made(**{name: value for name, value in fields.items() if name in known})
