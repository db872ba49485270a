"""A broker with real sockets, and a well-behaved client that must be served at all times."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from datetime import timedelta

from kio.schema.metadata.v12 import request as metadata
from kio.schema.produce.v9 import request as produce
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask
from tests.log.helpers.batch_builder import V2Record, batch

TOPIC = "neighbour"
DEADLINE_S = 120
IGNORED = ("INFO topic neighbour is created",)


def produce_request(topic: str, records: bytes | None, acks: int = 1, partition: int = 0) -> produce.ProduceRequest:
    """One batch for one partition."""
    held = None if records is None else Records.parse(records)
    of_partition = produce.PartitionProduceData(index=i32(partition), records=held)
    data = produce.TopicProduceData(name=TopicName(topic), partition_data=(of_partition,))
    timeout = i32Timedelta.parse(timedelta(seconds=10))
    return produce.ProduceRequest(transactional_id=None, acks=i16(acks), timeout=timeout, topic_data=(data,))


def good_batch(now_ms: int, count: int = 1) -> bytes:
    return batch(0, [V2Record(n, now_ms, b"k", b"v") for n in range(count)], leader_epoch=-1)


class Neighbour:
    """A well-behaved client with one open connection: each record it produces must get the next offset."""

    def __init__(self, broker: RunningBroker) -> None:
        self.connection = socket.create_connection((broker.host, broker.port), DEADLINE_S)
        self.offset = -1

    def is_served(self) -> None:
        answer = ask(self.connection, produce_request(TOPIC, good_batch(int(time.time() * 1000))))
        (told,) = answer.responses[0].partition_responses
        assert told.error_code is ErrorCode.none
        assert told.base_offset == (self.offset + 1 if self.offset >= 0 else told.base_offset)
        self.offset = told.base_offset


@contextlib.contextmanager
def undisturbed(broker: RunningBroker, lines: int | None) -> Iterator[list[str]]:
    """What happens inside leaves a neighbour served as before, and `lines` lines in the broker's log (None: any), which
    the list holds afterwards."""
    found: list[str] = []
    neighbour = Neighbour(broker)
    with neighbour.connection:
        neighbour.is_served()
        before = len(broker.log())
        yield found
        neighbour.is_served()
        end = time.monotonic() + DEADLINE_S
        while lines is not None and len(_lines(broker, before)) < lines and time.monotonic() < end:
            time.sleep(0.01)
        found += _lines(broker, before)
        assert lines is None or len(found) == lines, found
        assert not any(" ERROR " in line or "Traceback" in line for line in found), found


def _lines(broker: RunningBroker, begin: int) -> list[str]:
    return [line for line in broker.log()[begin:].splitlines() if not any(text in line for text in IGNORED)]


def connect(broker: RunningBroker) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), DEADLINE_S)


def is_closed(connection: socket.socket) -> bool:
    """Return whether the broker closes the connection without sending another byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def create_topic(broker: RunningBroker) -> None:
    broker.create_topic(TOPIC)


def metadata_of(broker: RunningBroker, name: str) -> ErrorCode:
    """The error code of a topic that may be created on demand."""
    topic = metadata.MetadataRequestTopic(topic_id=None, name=TopicName(name))
    asked = metadata.MetadataRequest(
        topics=(topic,), allow_auto_topic_creation=True, include_topic_authorized_operations=False
    )
    (told,) = broker.ask(asked).topics
    code: ErrorCode = told.error_code
    return code
