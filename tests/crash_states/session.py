"""A client of a workload: requests of producers, groups and administrators, noted in a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog_spark.format import layout
from kafkalog_spark.format.control_record import transaction_end
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.records import read_records
from kafkalog_spark.log.write.encoded_batch import split_batches
from tests.crash_states.broker_thread import Answer, BrokerThread, Client
from tests.crash_states.ledger import NEVER, Ledger, Partition, SentBatch, SentTransaction, Trim
from tests.log.helpers.batch_builder import TRANSACTIONAL, V2Record, batch

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 0, 1, 2, 3, 8, 9
FIND_COORDINATOR = 10
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
CREATE_PARTITIONS = 37
EARLIEST, LATEST = -2, -1
RETRIABLE = {"concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}
RETRIES = 200
TIMEOUT_MS = 600_000


class Refused(RuntimeError):
    """The broker answered with an error. `code`: its name."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


class FetchedRecord(NamedTuple):
    """A data record, or a marker with `marker` set."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    transactional: bool
    marker: ControlType | None


class Session:
    """Requests over one connection. broker: its clock moves by a millisecond with each request."""

    def __init__(self, client: Client, ledger: Ledger, broker: BrokerThread) -> None:
        self.client, self.ledger, self._broker = client, ledger, broker

    def ask(self, key: int, version: int, /, **fields: Any) -> Answer:
        self._broker.clock.advance(1)
        return self.client.ask(key, version, **fields)

    def pause(self) -> None:
        """Let the broker do what is due, before a request is tried again."""
        self._broker.tick()

    def checked(self, what: str, codes: Callable[[dict[str, Any]], Sequence[str]], key: int, version: int, /,
                 **fields: Any) -> Answer:  # fmt: skip
        """Ask until no code is retriable; raise Refused for one that is not `none`. sent_at is that of the first."""
        first = None
        for _ in range(RETRIES):
            answer = self.ask(key, version, **fields)
            first = answer.sent_at if first is None else first
            bad = [code for code in codes(answer.body) if code != "none"]
            if not bad:
                return Answer(answer.body, first, answer.acked_at)
            if not RETRIABLE.issuperset(bad):
                raise Refused(what, bad[0])
            self.pause()
        raise Refused(what, f"still {bad[0]} after {RETRIES} attempts")

    # ---- topics

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Create a topic and return its id. Configs with underscores for dots."""
        named = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
                 "configs": named}  # fmt: skip
        answer = self.checked(
            f"CreateTopics {name}", lambda body: [one["error_code"] for one in body["topics"]],
            CREATE_TOPICS, 7, topics=[topic], timeout=30_000, validate_only=False,
        )  # fmt: skip
        self.ledger.set(("topic", name), partitions, answer.sent_at, answer.acked_at)
        for key, value in configs.items():
            self.ledger.set(("config", "topic", name, key.replace("_", ".")), str(value), *answer[1:])
        return str(answer.body["topics"][0]["topic_id"])

    def delete_topic(self, name: str) -> None:
        answer = self.checked(
            f"DeleteTopics {name}", lambda body: [one["error_code"] for one in body["responses"]],
            DELETE_TOPICS, 6, topics=[{"name": name, "topic_id": "00000000-0000-0000-0000-000000000000"}],
            topic_names=[name], timeout=30_000,
        )  # fmt: skip
        for key in list(self.ledger.registers):
            if isinstance(key, tuple) and (key[:2] == ("topic", name) or key[:3] == ("config", "topic", name)):
                self.ledger.set(key, None, answer.sent_at, answer.acked_at)

    def add_partitions(self, name: str, count: int) -> None:
        answer = self.checked(
            f"CreatePartitions {name}", lambda body: [one["error_code"] for one in body["results"]],
            CREATE_PARTITIONS, 3, topics=[{"name": name, "count": count, "assignments": None}], timeout=30_000,
            validate_only=False,
        )  # fmt: skip
        self.ledger.set(("topic", name), count, answer.sent_at, answer.acked_at)

    def delete_records(self, partition: Partition, offset: int) -> None:
        topic, number = partition
        wanted = {"name": topic, "partitions": [{"partition_index": number, "offset": offset}]}
        self.ledger.trims.append(Trim(partition, offset, self._now()))
        self.checked(
            f"DeleteRecords {partition}", lambda body: codes_of(body["topics"]), DELETE_RECORDS, 2, topics=[wanted],
            timeout=30_000,
        )  # fmt: skip

    def _now(self) -> int:
        recorder = self.client._recorder
        return 0 if recorder is None else len(recorder.events)

    # ---- records

    def produce(self, partition: Partition, values: Sequence[bytes | None], *, keys: Sequence[bytes] | None = None,
                timestamp: int = 1_700_000_000_000, **fields: Any) -> SentBatch:  # fmt: skip
        """Produce one batch without a transaction and without a producer id, unless `fields` name one."""
        return self._produce(partition, values, keys, timestamp, 11, None, fields)

    def _produce(
        self, partition: Partition, values: Sequence[bytes | None], keys: Sequence[bytes] | None, timestamp: int,
        version: int, transaction: SentTransaction | None, fields: Mapping[str, Any],
    ) -> SentBatch:  # fmt: skip
        records = [
            V2Record(n, timestamp + n, None if keys is None else keys[n], value) for n, value in enumerate(values)
        ]
        attributes = 0 if transaction is None else TRANSACTIONAL
        data = batch(0, records, leader_epoch=-1, attributes=attributes, **fields)
        topic, number = partition
        sent = SentBatch(
            partition, list(values), self._now(), keys=None if keys is None else list(keys),
            producer_id=fields.get("producer_id", -1), producer_epoch=fields.get("producer_epoch", -1),
            sequence=fields.get("base_sequence", -1), transaction=transaction,
        )  # fmt: skip
        self.ledger.batches.append(sent)
        if transaction is not None:
            transaction.batches.append(sent)
        answer = self.checked(
            f"Produce to {partition}", lambda body: codes_of(body["responses"], "partition_responses"),
            PRODUCE, version, acks=-1, timeout=30_000,
            transactional_id=None if transaction is None else transaction.transactional_id,
            topic_data=[{"name": topic, "partition_data": [{"index": number, "records": data}]}],
        )  # fmt: skip
        sent.base_offset = answer.body["responses"][0]["partition_responses"][0]["base_offset"]
        sent.acked_at = answer.acked_at
        return sent

    def fetch(self, partition: Partition, offset: int, *, committed: bool = False) -> dict[str, Any]:
        """Return the partition's part of a response to Fetch, which waits for a moment: remote records take a turn."""
        topic, number = partition
        wanted = {"partition": number, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
                  "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
        answer = self.checked(
            f"Fetch {partition} at {offset}", lambda body: [body["error_code"], *codes_of(body["responses"])],
            FETCH, 12, replica_id=-1, max_wait=500, min_bytes=1, max_bytes=1 << 20, isolation_level=int(committed),
            session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
            topics=[{"topic": topic, "partitions": [wanted]}],
        )  # fmt: skip
        found: dict[str, Any] = answer.body["responses"][0]["partitions"][0]
        records, following = parse_records(found["records"] or b"", offset)
        if records:
            self.ledger.seen.append((partition, records[-1].offset + 1, answer.acked_at))
        return found | {"parsed": records, "next": following}

    def read(self, partition: Partition, *, committed: bool = False) -> tuple[int, int, list[FetchedRecord]]:
        """Return log start offset, the end that the isolation level allows, and what a consumer is given in between:
        all records and markers, or with `committed` those of committed transactions only."""
        start, found = self.list_offset(partition, EARLIEST), []
        end = self.list_offset(partition, LATEST, committed=committed)
        offset, aborted = start, set[int]()
        while offset < end:
            answer = self.fetch(partition, offset, committed=committed)
            records: list[FetchedRecord] = answer["parsed"]
            if answer["next"] == offset:
                break
            begins = sorted((one["first_offset"], one["producer_id"]) for one in (answer["aborted_transactions"] or ()))
            for record in records:
                while begins and begins[0][0] <= record.offset:
                    aborted.add(begins.pop(0)[1])
                if not committed:
                    found.append(record)
                elif record.marker is not None:
                    if record.marker is ControlType.ABORT:
                        aborted.discard(record.producer_id)
                    found.append(record)
                elif not (record.transactional and record.producer_id in aborted):
                    found.append(record)
            offset = answer["next"]
        return start, end, found

    def list_offset(self, partition: Partition, timestamp: int, *, committed: bool = False) -> int:
        topic, number = partition
        wanted = {"partition_index": number, "current_leader_epoch": -1, "timestamp": timestamp}
        answer = self.checked(
            f"ListOffsets {partition}", lambda body: codes_of(body["topics"]), LIST_OFFSETS, 7, replica_id=-1,
            isolation_level=int(committed), timeout=0, topics=[{"name": topic, "partitions": [wanted]}],
        )  # fmt: skip
        return int(answer.body["topics"][0]["partitions"][0]["offset"])

    def producer(self) -> IdempotentProducer:
        answer = self.checked(
            "InitProducerId", lambda body: [body["error_code"]], INIT_PRODUCER_ID, 4, transactional_id=None,
            transaction_timeout=TIMEOUT_MS, producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        self.ledger.producer_ids.append((answer.body["producer_id"], answer.acked_at))
        return IdempotentProducer(self, answer.body["producer_id"], answer.body["producer_epoch"])

    def find_coordinator(self, key: str, *, of_group: bool = False) -> None:
        """Ask for the coordinator, which creates its topic where there is none."""
        self.checked(
            f"FindCoordinator {key}", lambda body: [one["error_code"] for one in body["coordinators"]],
            FIND_COORDINATOR, 4, key_type=int(not of_group), coordinator_keys=[key],
        )  # fmt: skip

    def transactional_producer(self, transactional_id: str, version: int = 1) -> TransactionalProducer:
        """version: 1 adds partitions with AddPartitionsToTxn; 2 is that of KIP-890, where Produce adds them."""
        self.find_coordinator(transactional_id)
        producer = TransactionalProducer(self, transactional_id, version)
        producer.init()
        return producer


class IdempotentProducer:
    """Sends batches with sequence numbers, as `enable.idempotence`. next: sequence by partition."""

    def __init__(self, session: Session, producer_id: int, epoch: int) -> None:
        self.session, self.id, self.epoch = session, producer_id, epoch
        self.next: dict[Partition, int] = {}

    def produce(self, partition: Partition, values: Sequence[bytes | None], **more: Any) -> SentBatch:
        sequence = self.next.get(partition, 0)
        sent = self.session.produce(
            partition, values, producer_id=self.id, producer_epoch=self.epoch, base_sequence=sequence, **more
        )
        self.next[partition] = sequence + len(values)
        return sent


class TransactionalProducer:
    """A producer with a transactional id; `transaction` is the open one."""

    def __init__(self, session: Session, transactional_id: str, version: int) -> None:
        self.session, self.transactional_id, self.version = session, transactional_id, version
        self.id = self.epoch = -1
        self.transaction: SentTransaction | None = None
        self._added: set[Partition] = set()
        self._next: dict[Partition, int] = {}

    def init(self) -> None:
        """InitProducerId. A transaction of the same transactional id that is still open is aborted."""
        sent_at = self.session._now()
        for transaction in self.session.ledger.transactions:
            if transaction.transactional_id == self.transactional_id and transaction.ended_at == NEVER:
                transaction.fenced_at = min(transaction.fenced_at, sent_at)
        answer = self.session.checked(
            f"InitProducerId {self.transactional_id}", lambda body: [body["error_code"]], INIT_PRODUCER_ID, 4,
            transactional_id=self.transactional_id, transaction_timeout=TIMEOUT_MS, producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        self.session.ledger.producer_ids.append((answer.body["producer_id"], answer.acked_at))
        self._becomes(answer.body)

    def _becomes(self, body: Mapping[str, Any]) -> None:
        if (body["producer_id"], body["producer_epoch"]) != (self.id, self.epoch):
            self._next.clear()
        self.id, self.epoch = body["producer_id"], body["producer_epoch"]
        self.transaction, self._added = None, set()

    def _fields(self) -> dict[str, Any]:
        return {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}

    def _open(self) -> SentTransaction:
        if self.transaction is None:
            self.transaction = SentTransaction(self.transactional_id)
            self.session.ledger.transactions.append(self.transaction)
        return self.transaction

    def produce(
        self, partition: Partition, values: Sequence[bytes | None], timestamp: int = 1_700_000_000_000
    ) -> SentBatch:
        transaction = self._open()
        if self.version == 1 and partition not in self._added:
            topics = [{"name": partition[0], "partitions": [partition[1]]}]
            fields = {f"v3_and_below_{name}": value for name, value in self._fields().items()}
            self.session.checked(
                f"AddPartitionsToTxn {self.transactional_id}",
                lambda body: [
                    one["partition_error_code"]
                    for topic in body["results_by_topic_v3_and_below"]
                    for one in topic["results_by_partition"]
                ],
                ADD_PARTITIONS, 3, **fields, v3_and_below_topics=topics,
            )  # fmt: skip
            self._added.add(partition)
        sequence = self._next.get(partition, 0)
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, "base_sequence": sequence}
        version = 11 if self.version == 1 else 12
        sent = self.session._produce(partition, values, None, timestamp, version, transaction, fields)
        self._next[partition] = sequence + len(values)
        return sent

    def commit_offset(self, group: str, partition: Partition, offset: int) -> None:
        """Commit an offset of a group with the transaction."""
        transaction = self._open()
        self.session.find_coordinator(group, of_group=True)
        if self.version == 1:
            self.session.checked(
                "AddOffsetsToTxn", lambda body: [body["error_code"]], ADD_OFFSETS, 3, **self._fields(), group_id=group
            )
        wanted = {"partition_index": partition[1], "committed_offset": offset, "committed_leader_epoch": -1,
                  "committed_metadata": ""}  # fmt: skip
        answer = self.session.checked(
            "TxnOffsetCommit", lambda body: codes_of(body["topics"]), TXN_OFFSET_COMMIT, 4 if self.version == 1 else 5,
            **self._fields(), group_id=group, generation_id=-1, member_id="", group_instance_id=None,
            topics=[{"name": partition[0], "partitions": [wanted]}],
        )  # fmt: skip
        transaction.offsets[(group, *partition)] = offset
        self.session.ledger.set(("offset", group, *partition), offset, *answer[1:], transaction=transaction)

    def end(self, *, commit: bool) -> None:
        transaction = self._open()
        transaction.commits, transaction.ended_at = commit, self.session._now()
        answer = self.session.checked(
            f"EndTxn {self.transactional_id}", lambda body: [body["error_code"]], END_TXN,
            4 if self.version == 1 else 5, **self._fields(), committed=commit,
        )  # fmt: skip
        transaction.acked_at = answer.acked_at
        if self.version == 1:
            self.transaction, self._added = None, set()
        else:
            self._becomes(answer.body)


def codes_of(topics: Sequence[Mapping[str, Any]], partitions: str = "partitions") -> list[str]:
    return [one["error_code"] for topic in topics for one in topic[partitions]]


def parse_records(data: bytes, first: int = 0) -> tuple[list[FetchedRecord], int]:
    """Return the records of whole batches from offset `first` on, and the offset after the last batch.

    The cleaner may leave batches without records. Raises CorruptBatch.
    """
    found, following = [], first
    for encoded in split_batches(_whole(data)):
        header = encoded.header
        ended = transaction_end(encoded.data) if header.is_control else None
        marker = None if ended is None else ended[0]
        payload = memoryview(encoded.data)[layout.BATCH_OVERHEAD :]
        for one in read_records(payload, header.record_count, header.base_timestamp):
            offset = header.base_offset + one.offset_delta
            key = _bytes(payload, one.key_at, one.key_size)
            value = _bytes(payload, one.value_at, one.value_size)
            if offset >= first:
                record = FetchedRecord(offset, key, value, header.producer_id, header.is_transactional, marker)
                found.append(record)
        following = max(following, header.last_offset + 1)
    return found, following


def _whole(data: bytes) -> bytes:
    """Without a last batch that is cut short, which a response may hold."""
    at = 0
    while at + 12 <= len(data):
        following = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if following > len(data):
            break
        at = following
    return data[:at]


def _bytes(payload: memoryview, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(payload[at : at + size])
