"""Invalid requests get Kafka's error code or a closed connection and one log line; other clients are not affected."""

from __future__ import annotations

import contextlib
import gzip
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.fetch.v12 import request as fetch
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.net.helpers.served import (
    DEADLINE_S,
    TOPIC,
    connect,
    create_topic,
    framed,
    good_batch,
    is_closed,
    metadata_of,
    produce_request,
    undisturbed,
)
from tests.log.helpers.batch_builder import CODECS, V2Record, batch, encoded, sealed

LARGEST = 2_000_000
IDLE_MS = 1_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(
        tmp_path_factory.mktemp("bad") / "data", {"socket.request.max.bytes": LARGEST, "num.partitions": 1}
    )
    with broker:
        create_topic(broker)
        yield broker


# ---- frames

NUMBERS = random.Random(4)
FRAMES = {
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "negative size": struct.pack(">i", -1),
    "smallest size": struct.pack(">i", -(2**31)),
    "too large": struct.pack(">i", LARGEST + 1),
    "largest size": struct.pack(">i", 2**31 - 1),
    "empty": framed(b""),
    "half a header": framed(b"\0\3\0"),
    "unknown key": framed(struct.pack(">hhih", 4711, 0, 1, -1)),
    "negative key": framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "key that is gone": framed(struct.pack(">hhih", 4, 0, 1, -1)),
    "unknown version": framed(struct.pack(">hhih", 3, 99, 1, -1)),
    "negative version": framed(struct.pack(">hhih", 3, -1, 1, -1)),
    "Produce 0": framed(struct.pack(">hhih", 0, 0, 1, -1)),
    "client id behind the frame": framed(struct.pack(">hhih", 3, 1, 1, 30_000)),
    "array of 2^31-1": framed(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)),
    "array of -5": framed(struct.pack(">hhihi", 3, 1, 1, -1, -5)),
    "varint without an end": framed(struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 30),
    "tagged field behind the frame": framed(struct.pack(">hhih", 3, 12, 1, -1) + b"\1\5\x7f"),
    **{f"random {n}": framed(b"\x7f" + NUMBERS.randbytes(NUMBERS.randrange(200))) for n in range(10)},
}


@pytest.mark.parametrize("name", FRAMES)
def test_malformed_frame_closes_its_connection_with_one_log_line(served: RunningBroker, name: str) -> None:
    with undisturbed(served, lines=1) as lines, connect(served) as bad:
        bad.sendall(FRAMES[name])
        assert is_closed(bad)
        port = bad.getsockname()[1]
    assert f"WARNING connection 127.0.0.1:{port} on PLAINTEXT closed: " in lines[0]


def test_random_bytes_close_their_connection(served: RunningBroker) -> None:
    numbers = random.Random(6)
    with undisturbed(served, lines=None) as lines:
        for _ in range(200):
            with connect(served) as bad:
                bad.sendall(numbers.randbytes(numbers.randrange(1, 5_000)))
                bad.shutdown(socket.SHUT_WR)
                assert is_closed(bad)
    assert 0 < len(lines) <= 200
    told = ("closed: ", "similar lines were suppressed")  # other tests have used some of what may be logged
    assert [line for line in lines if not any(text in line for text in told)] == []


@pytest.mark.parametrize("sent", [1, 3, 4, 5, 30])
def test_connection_closed_within_a_frame_is_removed(served: RunningBroker, sent: int) -> None:
    frame = framed(struct.pack(">hhih", 18, 0, 1, 20) + b"x" * 20)
    with undisturbed(served, lines=0), connect(served) as bad:
        bad.sendall(frame[:sent])
        bad.shutdown(socket.SHUT_WR)
        assert is_closed(bad)


@pytest.mark.end_to_end
def test_connection_idle_within_a_frame_is_closed(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", {"connections.max.idle.ms": IDLE_MS}) as broker:
        create_topic(broker)
        with contextlib.ExitStack() as stack:
            stuck = [stack.enter_context(connect(broker)) for _ in range(20)]
            for number, bad in enumerate(stuck):
                with contextlib.suppress(ConnectionError):  # on a busy machine it may be idle before
                    bad.sendall(framed(bytes(1000))[: number * 50 + 1])
            for bad in stuck:
                assert is_closed(bad)
        assert metadata_of(broker, TOPIC) is ErrorCode.none
        end = time.monotonic() + DEADLINE_S
        while broker.log().count("connections.max.idle.ms") < len(stuck) and time.monotonic() < end:
            time.sleep(0.01)
        assert broker.log().count("connections.max.idle.ms") == len(stuck)


def fetch_request() -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=i32(0), current_leader_epoch=i32(-1), fetch_offset=i64(0), last_fetched_epoch=i32(-1),
        log_start_offset=i64(-1), partition_max_bytes=i32(1 << 20),
    )  # fmt: skip
    return fetch.FetchRequest(
        cluster_id=None, replica_id=BrokerId(-1), max_wait=i32Timedelta.parse(timedelta(0)), min_bytes=i32(1),
        max_bytes=i32(1 << 20),
        isolation_level=i8(0), session_id=i32(0), session_epoch=i32(-1), forgotten_topics_data=(), rack_id="",
        topics=(fetch.FetchTopic(topic=TopicName("large"), partitions=(partition,)),),
    )  # fmt: skip


def test_clients_that_stop_reading_use_bounded_memory(served: RunningBroker) -> None:
    now = int(time.time() * 1000)
    served.create_topic("large")
    value = bytes(900_000)
    records = batch(0, [V2Record(0, now, b"k", value)], leader_epoch=-1)
    assert served.ask(produce_request("large", records)).responses[0].partition_responses[0].error_code == 0
    clients, requests = 20, 50
    with undisturbed(served, lines=0), contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(socket.socket()) for _ in range(clients)]
        for client in deaf:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((served.host, served.port))
        ask(deaf[0], fetch_request())  # once to the end: what is measured is what waits
        before = resident_bytes(served)
        frame = _frame_of(fetch_request())
        for client in deaf:
            client.sendall(frame * requests)
        for _ in range(20):
            assert metadata_of(served, TOPIC) is ErrorCode.none
        # Each may have one response waiting; all that was asked for would be 900 MB.
        assert resident_bytes(served) - before < clients * (len(value) + (1 << 20)) + (20 << 20)


def _frame_of(request: fetch.FetchRequest) -> bytes:
    """As `ask` sends it."""

    class Wire:
        data = b""

        def sendall(self, data: bytes) -> None:
            self.data += data

        def recv(self, _: int) -> bytes:
            return b""

    wire = Wire()
    with pytest.raises(ConnectionError):
        ask(wire, request)  # type: ignore[arg-type]
    return wire.data


def resident_bytes(broker: RunningBroker) -> int:
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# ---- connections


@pytest.mark.end_to_end
def test_ten_thousand_connection_attempts_beyond_the_limit_keep_open_connections(tmp_path: Path) -> None:
    """Connections above max.connections are closed at once with one log line for all."""
    limit = 200
    with RunningBroker(tmp_path / "data", {"max.connections": limit}) as broker:
        create_topic(broker)
        with undisturbed(broker, lines=1) as lines, contextlib.ExitStack() as stack:
            held = [stack.enter_context(connect(broker)) for _ in range(limit - 1)]
            for client in held:
                client.sendall(framed(struct.pack(">hhih", 18, 0, 1, -1)))
            for client in held:
                assert client.recv(4)
            for _ in range(10_000 - limit):
                # Each waits for its end: faster than the listen backlog is emptied, TCP makes it wait a second.
                with connect(broker) as client:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    assert is_closed(client)
        assert f"max.connections={limit} are open" in lines[0]


# ---- topic names


NAMES = {"slash": "a/b", "dots": "..", "dot": ".", "space": "a b", "line": "a\nb", "empty": "", "long": "x" * 250}


@pytest.mark.parametrize("name", NAMES)
def test_invalid_topic_name_gets_the_error_code_of_kafka(served: RunningBroker, name: str) -> None:
    topic = NAMES[name]
    before = sorted(path.name for path in served.log_dir.iterdir())
    with undisturbed(served, lines=1) as lines:
        assert metadata_of(served, topic) is ErrorCode.invalid_topic_exception
    assert "Topic name is invalid" in lines[0]
    with undisturbed(served, lines=1) as lines:
        assert _created(served, topic) is ErrorCode.invalid_topic_exception
    assert "Topic name is invalid" in lines[0]
    with undisturbed(served, lines=None):
        answer = served.ask(produce_request(topic, good_batch(0)))
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_or_partition
    assert sorted(path.name for path in served.log_dir.iterdir()) == before


def test_topic_name_of_maximum_length_is_served(served: RunningBroker) -> None:
    assert _created(served, "x" * 249) is ErrorCode.none
    assert (served.log_dir / ("x" * 249 + "-0")).is_dir()


def _created(broker: RunningBroker, name: str) -> ErrorCode:
    topic = create_topics.CreatableTopic(
        name=TopicName(name), num_partitions=i32(1), replication_factor=i16(1), assignments=(), configs=()
    )
    (told,) = broker.ask(create_topics.CreateTopicsRequest(topics=(topic,), validate_only=False)).topics
    code: ErrorCode = told.error_code
    return code


# ---- batches


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return sealed(data[:at] + new + data[at + len(new) :])


def bomb(codec: str) -> bytes:
    """A batch of less than a megabyte whose records decompress to 200 MB."""
    now = int(time.time() * 1000)
    record = [V2Record(0, now, b"k", bytes(200 << 20))]
    if codec != "gzip":
        return batch(0, record, codec=CODECS[codec], leader_epoch=-1)
    packed = gzip.compress(encoded(record, 0, now), 9, mtime=0)
    return patched(batch(0, [V2Record(0, now)], payload=packed, leader_epoch=-1), 21, struct.pack(">h", CODECS[codec]))


def batches() -> dict[str, tuple[bytes, ErrorCode]]:
    good = good_batch(int(time.time() * 1000), 3)
    return {
        "wrong CRC": (good[:-1] + b"!", ErrorCode.corrupt_message),
        "too many records": (patched(good, 57, struct.pack(">i", 2**31 - 1)), ErrorCode.invalid_record),
        "too few records": (patched(good, 57, struct.pack(">i", 1)), ErrorCode.invalid_record),
        "negative count": (patched(good, 57, struct.pack(">i", -3)), ErrorCode.invalid_record),
        "unknown codec": (patched(good, 21, struct.pack(">h", 6)), ErrorCode.unsupported_compression_type),
        "not compressed as it says": (patched(good, 21, struct.pack(">h", 4)), ErrorCode.invalid_record),
        "cut": (good[:-1], ErrorCode.invalid_record),
        "no batch": (b"\0" * 7, ErrorCode.invalid_record),
        "magic 1": (good[:16] + b"\1" + good[17:], ErrorCode.invalid_record),
        "control": (patched(good, 21, struct.pack(">h", 0x20)), ErrorCode.invalid_record),
        **{f"bomb of {codec}": (bomb(codec), ErrorCode.invalid_record) for codec in ("gzip", "zstd")},
    }


@pytest.fixture(scope="module")
def bad_batches() -> dict[str, tuple[bytes, ErrorCode]]:
    return batches()


@pytest.mark.parametrize(
    "name",
    [
        "wrong CRC", "too many records", "too few records", "negative count", "unknown codec",
        "not compressed as it says", "cut", "no batch", "magic 1", "control", "bomb of gzip", "bomb of zstd",
    ],
)  # fmt: skip
def test_invalid_batch_gets_the_error_code_of_kafka_and_one_log_line(
    served: RunningBroker, bad_batches: dict[str, tuple[bytes, ErrorCode]], name: str
) -> None:
    records, code = bad_batches[name]
    assert len(records) < 1_000_000
    with undisturbed(served, lines=1) as lines:
        answer = served.ask(produce_request(TOPIC, records))
        (told,) = answer.responses[0].partition_responses
        assert told.error_code is code, told
    assert f"WARNING Produce to {TOPIC}-0 from 127.0.0.1:" in lines[0]


def test_invalid_batch_with_acks_0_closes_the_connection(
    served: RunningBroker, bad_batches: dict[str, tuple[bytes, ErrorCode]]
) -> None:
    records, _ = bad_batches["wrong CRC"]
    with undisturbed(served, lines=None) as lines, connect(served) as bad, pytest.raises(ConnectionError):
        ask(bad, produce_request(TOPIC, records, acks=0))
    assert any("closed: " in line for line in lines)
