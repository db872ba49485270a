"""The steps whose fsyncs are compared: one request or one start or stop of a broker each, the same for both brokers.

Every step is a function of `Session`; `STEPS` has their order. A step begins and ends with a quiet trace, so that the
work which a broker does after its response belongs to the step too. Periodic work does not run (`PROPERTIES`), except
for its first run in Kafka, which belongs to the step "first start".
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypedDict

from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.api.helpers.transaction_requests import batch
from tests.interop.fsync_trace import NAMES, SYNCS, Event, Trace, counts, kind_of

HOUR_MS = 3_600_000
SEGMENT_BYTES = 1_000  # one batch of BATCH_RECORDS fits into a segment, two do not
BATCH_RECORDS = 60
RESPONSE_SECONDS = 60.0
PROPERTIES: dict[str, object] = {
    "node.id": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.retention.ms": -1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # Renamed directories of deleted topics are removed during the step that deletes the topic.
    "log.segment.delete.delay.ms": 100,
    "log.initial.task.delay.ms": 1_000,
    # No periodic work in the middle of a step.
    "log.flush.offset.checkpoint.interval.ms": HOUR_MS,
    "log.flush.start.offset.checkpoint.interval.ms": HOUR_MS,
    "replica.high.watermark.checkpoint.interval.ms": HOUR_MS,
    "log.retention.check.interval.ms": HOUR_MS,
}
"""Properties of both brokers."""
SETTINGS: dict[str, dict[str, object]] = {"default": {}, "log.flush.interval.messages=1": {
    "log.flush.interval.messages": 1}}  # fmt: skip
"""Properties of each setting under which all steps run."""

_PRODUCE, _OFFSET_COMMIT, _FIND_COORDINATOR, _CREATE_TOPICS, _DELETE_TOPICS, _DELETE_RECORDS = 0, 8, 10, 19, 20, 21
_INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _TXN_OFFSET_COMMIT, _CREATE_ACLS = 22, 24, 25, 26, 28, 30
_JOIN_GROUP, _LEAVE_GROUP, _SYNC_GROUP, _DELETE_GROUPS, _OFFSET_DELETE = 11, 13, 14, 42, 47
_CREATE_PARTITIONS, _ALTER_CONFIGS, _ALTER_QUOTAS, _ALTER_SCRAM = 37, 44, 49, 51
_GROUP = "readers"
_TOPIC, _BROKER, _SCRAM_SHA_256 = 2, 4, 1
_TRANSIENT = frozenset({
    "coordinator_not_available", "not_coordinator", "coordinator_load_in_progress", "concurrent_transactions",
    "not_leader_or_follower", "unknown_topic_or_partition", "leader_not_available", "request_timed_out",
})  # fmt: skip


class Node(Protocol):
    """A broker that can be started again and again in one log directory."""

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> str: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def be_idle(self) -> None:
        """Let two checkpoint intervals pass, if the clock of the broker can be moved."""


class Row(TypedDict):
    """System calls of one step: how often each call was made on each kind of file. `before`: the `syncs` that had
    returned before the response was received, none of WITHOUT_RESPONSE. `order`: of an end of a transaction, the synced
    `.log` files in order."""

    syncs: dict[str, int]
    before: dict[str, int]
    names: dict[str, int]
    order: list[str]


class Session:
    """A broker under trace. A step ends `quiet_seconds` after its last system call. `expected`: rows of an earlier
    recording; a step waits for its syncs for at most `wait_seconds`."""

    def __init__(
        self,
        node: Node,
        trace: Trace,
        log_dir: Path,
        *,
        quiet_seconds: float,
        wait_seconds: float,
        expected: dict[str, Row] | None = None,
    ) -> None:
        self.node = node
        self.rows: dict[str, Row] = {}
        self._trace, self._log_dir = trace, log_dir
        self._quiet_seconds, self._wait_seconds = quiet_seconds, wait_seconds
        self._expected = expected or {}
        self.producer: dict[str, Any] = {}
        self.member: dict[str, Any] = {}
        self.sequences: Counter[tuple[str, int]] = Counter()

    def run(self, steps: Iterable[tuple[str, Callable[[Session], object]]]) -> dict[str, Row]:
        """Run the steps in order; return their rows. Raises RuntimeError if the broker refuses a request."""
        for name, step in steps:
            self._check_is_quiet(name)
            step(self)
            answered = time.time()
            row = self._row(self._settled(name), 0 if name in WITHOUT_RESPONSE else answered)
            self.rows[name] = row if name.startswith("EndTxn") else row | {"order": []}
        return self.rows

    def _check_is_quiet(self, name: str) -> None:
        stray = counts((event for event in self._trace.read() if event.call in SYNCS), self._log_dir)
        if stray:
            raise RuntimeError(f"before the step {name!r} the trace was not quiet: {dict(stray)}")

    def _settled(self, name: str) -> list[Event]:
        """Return the events of a step when those that are expected have been seen and no other one followed for a
        while."""
        events: list[Event] = []
        began = changed = time.monotonic()
        wanted = self._expected.get(name)
        while True:
            new = [event for event in self._trace.read() if counts([event], self._log_dir)]
            events += new
            now = time.monotonic()
            if new:
                changed = now
            complete = wanted is None or Counter(wanted["syncs"]) <= Counter(self._row(events, 0)["syncs"])
            if now - changed >= self._quiet_seconds and (complete or now - began >= self._wait_seconds):
                return events
            time.sleep(0.02)

    def _row(self, events: list[Event], answered: float) -> Row:
        syncs = [event for event in events if event.call in SYNCS]
        names = [event for event in events if event.call in NAMES]
        before = [event for event in syncs if event.ended <= answered]
        kinds = [kind_of(event.path, self._log_dir) for event in syncs]
        return {
            "syncs": self._counts(syncs),
            "before": self._counts(before),
            "names": self._counts(names),
            "order": [kind for kind in kinds if kind is not None and kind.endswith(" .log")],
        }

    def _counts(self, events: Iterable[Event]) -> dict[str, int]:
        return dict(sorted(counts(events, self._log_dir).items()))

    # ---- requests

    def ask(self, key: int, version: int, **fields: Any) -> dict[str, Any]:
        """Send a request, again while its error is transient; return the response. Raises RuntimeError for errors."""
        host, port = self.node.bootstrap.split(":")
        end = time.monotonic() + RESPONSE_SECONDS
        while True:
            with closing(socket.create_connection((host, int(port)), RESPONSE_SECONDS)) as connection:
                response: dict[str, Any] = plain(ask(connection, request_entity(key, version, fields, {})))
            errors = set(_errors(response))
            if not errors:
                return response
            if not errors <= _TRANSIENT or time.monotonic() > end:
                raise RuntimeError(f"request {key} v{version}: {response}")
            time.sleep(0.05)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
                 "configs": settings}  # fmt: skip
        self.ask(_CREATE_TOPICS, 7, topics=[topic], timeout=30_000, validate_only=False)

    def produce(self, topic: str, version: int = 11, *, transactional: bool = False, partition: int = 0) -> None:
        identity = {"producer_id": -1, "producer_epoch": -1}
        sequence = -1
        if transactional:
            identity = {key: self.producer[key] for key in identity}
            sequence = self.sequences[topic, partition]
            self.sequences[topic, partition] += BATCH_RECORDS
        now_ms = time.time_ns() // 1_000_000  # an older one would roll the segment when a marker is appended
        data = batch(BATCH_RECORDS, sequence, transactional=transactional, timestamp=now_ms, **identity)
        part = {"name": topic, "partition_data": [{"index": partition, "records": data}]}
        name = self.producer["transactional_id"] if transactional else None
        self.ask(_PRODUCE, version, transactional_id=name, acks=-1, timeout=30_000, topic_data=[part])

    def init_producer(self, transactional_id: str | None) -> None:
        answer = self.ask(_INIT, 4, transactional_id=transactional_id, transaction_timeout=60_000, producer_id=-1,
                          producer_epoch=-1)  # fmt: skip
        self.producer = {name: answer[name] for name in ("producer_id", "producer_epoch")}
        self.producer["transactional_id"] = transactional_id
        self.sequences.clear()

    def add_partitions(self, topic: str) -> None:
        fields = {f"v3_and_below_{name}": value for name, value in self.producer.items()}
        topics = [{"name": topic, "partitions": [0]}]
        self.ask(_ADD_PARTITIONS, 3, **fields, v3_and_below_topics=topics)

    def add_offsets(self) -> None:
        self.ask(_ADD_OFFSETS, 3, **self.producer, group_id=_GROUP)

    def commit_in_transaction(self, version: int) -> None:
        self.ask(_TXN_OFFSET_COMMIT, version, **self.producer, group_id=_GROUP, generation_id=-1, member_id="",
                 group_instance_id=None, topics=[_offset(1)])  # fmt: skip

    def commit(self) -> None:
        self.ask(_OFFSET_COMMIT, 7, group_id=_GROUP, generation_id_or_member_epoch=-1, member_id="",
                 group_instance_id=None, topics=[_offset(1)])  # fmt: skip

    def join(self) -> None:
        """Join the group as its only member."""
        protocol = {"name": "range", "metadata": b""}
        answer = self.ask(_JOIN_GROUP, 3, group_id=_GROUP, session_timeout=300_000, rebalance_timeout=300_000,
                          member_id="", protocol_type="consumer", protocols=[protocol])  # fmt: skip
        self.member = {"group_id": _GROUP, "member_id": answer["member_id"]}

    def sync_group(self) -> None:
        assignment = {"member_id": self.member["member_id"], "assignment": b"all"}
        self.ask(_SYNC_GROUP, 2, **self.member, generation_id=1, assignments=[assignment])

    def end(self, version: int, *, committed: bool) -> None:
        """End the transaction; return when its markers are written."""
        answer = self.ask(_END, version, **self.producer, committed=committed)
        if version >= 5:
            if answer["producer_id"] != self.producer["producer_id"] or (
                answer["producer_epoch"] != self.producer["producer_epoch"]
            ):
                self.sequences.clear()
            self.producer |= {name: answer[name] for name in ("producer_id", "producer_epoch")}

    def alter(self, kind: int, name: str, config: str, value: str) -> None:
        change = {"name": config, "config_operation": 0, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        self.ask(_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)

    def find_coordinator(self, key_type: int, name: str) -> None:
        self.ask(_FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[name])

    def abort_one(self) -> None:
        """Abort a transaction in `rolled`."""
        self.init_producer("mover")
        self.add_partitions("rolled")
        self.produce("rolled", transactional=True)
        self.end(3, committed=False)


def _offset(offset: int) -> dict[str, Any]:
    return {"name": "plain", "partitions": [
        {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    ]}  # fmt: skip


def _errors(response: Any) -> Iterable[str]:
    if isinstance(response, dict):
        if response.get("error_code", "none") != "none":
            yield response["error_code"]
        for value in response.values():
            yield from _errors(value)
    elif isinstance(response, list):
        for value in response:
            yield from _errors(value)


def _create_acl(session: Session) -> None:
    acl = {"resource_type": _TOPIC, "resource_name": "plain", "resource_pattern_type": 3, "principal": "User:alice",
           "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    session.ask(_CREATE_ACLS, 3, creations=[acl])


def _create_scram_user(session: Session) -> None:
    user = {"name": "alice", "mechanism": _SCRAM_SHA_256, "iterations": 4096, "salt": b"s" * 16,
            "salted_password": b"p" * 32}  # fmt: skip
    session.ask(_ALTER_SCRAM, 0, deletions=[], upsertions=[user])


def _delete_records(session: Session) -> None:
    partition = {"partition_index": 0, "offset": 10}
    session.ask(_DELETE_RECORDS, 2, topics=[{"name": "plain", "partitions": [partition]}], timeout=30_000)


def _delete_offsets(session: Session) -> None:
    topics = [{"name": "plain", "partitions": [{"partition_index": 0}]}]
    session.ask(_OFFSET_DELETE, 0, group_id=_GROUP, topics=topics)


def _change_quotas(session: Session) -> None:
    entity, rate = {"entity_type": "client-id", "entity_name": "someone"}, 1e9
    change = {"key": "producer_byte_rate", "value": rate, "remove": False}
    session.ask(_ALTER_QUOTAS, 0, entries=[{"entity": [entity], "ops": [change]}], validate_only=False)


def _create_partitions(session: Session) -> None:
    session.ask(_CREATE_PARTITIONS, 3, topics=[{"name": "plain", "count": 2, "assignments": None}], timeout=30_000,
                validate_only=False)  # fmt: skip


def _delete_topic(session: Session) -> None:
    session.ask(_DELETE_TOPICS, 6, topics=[{"name": "wide", "topic_id": None}], timeout=30_000)


STEPS: dict[str, Callable[[Session], object]] = {
    "first start in an empty directory": lambda s: s.node.start(),
    "create a topic with 1 partition": lambda s: s.create_topic("plain"),
    "create a topic with 4 partitions": lambda s: s.create_topic("wide", 4),
    "create a topic with flush.messages=1": lambda s: s.create_topic("flushed", flush_messages="1"),
    "create a topic with small segments": lambda s: s.create_topic(
        "rolled", internal_segment_bytes=str(SEGMENT_BYTES), index_interval_bytes="1"
    ),
    "Produce, first batch of the partition": lambda s: s.produce("plain"),
    "Produce, next batch": lambda s: s.produce("plain"),
    "Produce with flush.messages=1, first batch": lambda s: s.produce("flushed"),
    "Produce with flush.messages=1, next batch": lambda s: s.produce("flushed"),
    "FindCoordinator, first group": lambda s: s.find_coordinator(0, _GROUP),
    "OffsetCommit, first one": Session.commit,
    "OffsetCommit, next one": Session.commit,
    "FindCoordinator, first transactional ID": lambda s: s.find_coordinator(1, "mover"),
    "InitProducerId without a transactional ID": lambda s: s.init_producer(None),
    "InitProducerId, new transactional ID": lambda s: s.init_producer("mover"),
    "AddPartitionsToTxn v3": lambda s: s.add_partitions("rolled"),
    "Produce in the transaction": lambda s: s.produce("rolled", transactional=True),
    "AddOffsetsToTxn v3": Session.add_offsets,
    "TxnOffsetCommit v3": lambda s: s.commit_in_transaction(3),
    "EndTxn v3, commit of records and offsets": lambda s: s.end(3, committed=True),
    "AddPartitionsToTxn v3, next transaction": lambda s: s.add_partitions("rolled"),
    "Produce in the transaction, rolls the segment": lambda s: s.produce("rolled", transactional=True),
    "EndTxn v3, abort": lambda s: s.end(3, committed=False),
    "Produce, rolls a segment with an aborted transaction": lambda s: s.produce("rolled"),
    "InitProducerId, known transactional ID": lambda s: s.init_producer("mover"),
    "Produce v12, adds the partition": lambda s: s.produce("plain", 12, transactional=True),
    "TxnOffsetCommit v5, adds the group": lambda s: s.commit_in_transaction(5),
    "EndTxn v5, commit": lambda s: s.end(5, committed=True),
    "JoinGroup": Session.join,
    "SyncGroup": Session.sync_group,
    "LeaveGroup": lambda s: s.ask(_LEAVE_GROUP, 2, **s.member),
    "OffsetDelete": _delete_offsets,
    "DeleteGroups": lambda s: s.ask(_DELETE_GROUPS, 1, groups_names=[_GROUP]),
    "DeleteRecords": _delete_records,
    "create a partition": _create_partitions,
    "change a topic's configuration": lambda s: s.alter(_TOPIC, "plain", "retention.ms", "86400000"),
    "change the broker's configuration": lambda s: s.alter(_BROKER, "1", "num.io.threads", "9"),
    "create an ACL": _create_acl,
    "create a SCRAM user": _create_scram_user,
    "change client quotas": _change_quotas,
    "delete a topic with 4 partitions": _delete_topic,
    "clean shutdown": lambda s: s.node.stop(),
    "start after a clean shutdown": lambda s: s.node.start(),
    "Produce after the restart": lambda s: s.produce("plain"),
    "kill -9": lambda s: s.node.kill(),
    "start after kill -9": lambda s: s.node.start(),
    "clean shutdown without appends": lambda s: s.node.stop(),
    "start after the second clean shutdown": lambda s: s.node.start(),
    "another transaction, aborted, rolls the segment": Session.abort_one,
    "no request for two checkpoint intervals": lambda s: s.node.be_idle(),
    "Produce, rolls the idle segment with an aborted transaction": lambda s: s.produce("rolled"),
}
"""Steps by name, in their order."""
WITHOUT_RESPONSE = frozenset({
    "FindCoordinator, first group", "FindCoordinator, first transactional ID",
    "another transaction, aborted, rolls the segment", "no request for two checkpoint intervals",
})  # fmt: skip
"""Steps without the response of one request: they have several requests, one that is repeated, or none."""
