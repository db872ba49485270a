"""A record without a key in an internal topic is skipped, and the other records of its partition are loaded.
Kafka accepts such a record from the client ID `__admin_client`, and so does this broker."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from kafkalog_broker.coordinator.record_batch import decode_batches, encode_batch
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.client_messages import decode_response, encode_client_request
from kafkalog_broker.testing import RunningBroker
from tests.broker.net.helpers.served import produce_request
from tests.log.helpers.batch_builder import V2Record, batch

OFFSETS = "__consumer_offsets"


def written(broker: RunningBroker, topic: str, key: bytes | None, client_id: str) -> ErrorCode:
    request = produce_request(topic, batch(0, [V2Record(0, int(time.time() * 1000), key, b"v")], leader_epoch=-1))
    frame = encode_client_request(request, client_id)
    with socket.create_connection((broker.host, broker.port), 30) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = decode_response(request.__api_key__, request.__version__, connection.recv(size, socket.MSG_WAITALL))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def consumer(broker: RunningBroker) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group"})


def test_records_without_a_key_are_logged_and_others_are_decoded(caplog):
    without = batch(7, [V2Record(7, 0, None, b"v"), V2Record(8, 0, b"k", b"v"), V2Record(9, 0, b"k", None)])
    read = list(decode_batches([without + encode_batch([(b"l", b"w")], 0, base_offset=10)]))
    assert [one.records for one in read] == [[(b"k", b"v"), (b"k", None)], [(b"l", b"w")]]
    assert "1 of the 3 records at offset 7 have no key" in caplog.text


def test_produce_to_the_offsets_topic_by_other_clients_than_the_admin_client_is_refused(tmp_path: Path) -> None:
    """The codes are Kafka's (4.3.0, asked once)."""
    with RunningBroker(tmp_path / "data", {"offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("orders")
        assert written(broker, OFFSETS, b"k", "anybody") is ErrorCode.unknown_topic_or_partition
        client = consumer(broker)
        client.commit(offsets=[TopicPartition("orders", 0, 42)], asynchronous=False)
        client.close()
        assert written(broker, OFFSETS, b"k", "anybody") is ErrorCode.invalid_topic_exception
        # The topic is compacted, so not even that client leaves keys out while it is.
        assert written(broker, OFFSETS, None, "__admin_client") is ErrorCode.invalid_record
        assert written(broker, OFFSETS, b"k", "__admin_client") is ErrorCode.none
        broker.stop()
        (path,) = broker.log_dir.glob(f"{OFFSETS}-0/*.log")
        *_, last = decode_batches([path.read_bytes()])
        end = last.base_offset + len(last.records)
        with path.open("ab") as file:
            file.write(batch(end, [V2Record(end, 0, None, b"v")], leader_epoch=0))
        (broker.log_dir / ".kafka_cleanshutdown").unlink()
        broker.start()
        client = consumer(broker)
        assert [one.offset for one in client.committed([TopicPartition("orders", 0)], 30)] == [42]
        client.close()
        assert "have no key and are skipped" in broker.log()
