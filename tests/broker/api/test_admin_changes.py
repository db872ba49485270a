"""What admin requests change: topics, logs and configuration, now and after a restart."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path

import pytest

import kafkalog_broker
from kafkalog_broker.admin.config_listing import loggers
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.partition.local_log import create_log_files
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    SET,
    TOPIC,
    alter,
    change,
    create,
    delete,
    describe,
    incremental,
    metadata,
    more,
    new_topic,
    records,
    replacing,
    total,
)
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.storage.helpers.stored_logs import append_records


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        yield broker


def ask(broker, step, version=None):
    key, versions, values = step
    return broker.ask(request_entity(key, versions[-1] if version is None else version, values, {}))


def one(answer):
    results = getattr(answer, "results", None) or getattr(answer, "responses", None) or answer.topics
    assert len(results) == 1
    return results[0]


def described(broker, kind, name, key):
    found = one(ask(broker, describe((kind, name, [key]))))
    return found.configs[0].value if found.configs else None


def test_a_new_topic_has_logs_with_its_configuration(broker, tmp_path):
    ask(broker, create(new_topic("orders", 3, configs={"retention.ms": "5"})))
    assert [broker.log("orders", index).config.retention_ms for index in range(3)] == [5, 5, 5]
    assert (tmp_path / "data" / "orders-2" / "partition.metadata").exists()


def test_a_topic_that_is_only_validated_is_not_made(broker):
    assert one(ask(broker, create(new_topic("orders"), validate_only=True))).error_code is ErrorCode.none
    assert "orders" not in broker.topics
    ask(broker, create(new_topic("orders")))
    ask(broker, more(total("orders", 4), validate_only=True))
    assert broker.topics.get("orders").partitions == 1


@pytest.mark.parametrize("validate_only", [False, True])
def test_the_topic_of_krafts_metadata_cannot_be_created(broker, validate_only):
    refused = one(ask(broker, create(new_topic("__cluster_metadata"), validate_only=validate_only)))
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    assert "__cluster_metadata" not in broker.topics


def test_more_partitions_than_a_request_may_make_are_refused(broker):
    answer = ask(broker, create(new_topic("a", 9_000), new_topic("b", 2_000)))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.policy_violation}
    assert len(broker.topics) == 0
    ask(broker, create(new_topic("c")))
    assert one(ask(broker, more(total("c", 2**31 - 1)))).error_code is ErrorCode.policy_violation


def test_new_partitions_have_logs(broker):
    ask(broker, create(new_topic("orders", 1, configs={"retention.ms": "5"})))
    ask(broker, more(total("orders", 3)))
    assert broker.log("orders", 2).config.retention_ms == 5


def test_a_topic_whose_logs_cannot_be_made_is_taken_back_and_can_be_made_again(broker, tmp_path):
    (tmp_path / "data" / "orders-2").write_text("in the way")
    failed = one(ask(broker, create(new_topic("orders", 4))))
    assert failed.error_code is ErrorCode.kafka_storage_error
    assert "orders-2 is there already" in failed.error_message
    assert "orders" not in broker.topics
    assert broker.logs.partitions("orders") == []
    live = {path.name for path in (tmp_path / "data").glob("orders-?")}
    assert live == {"orders-2"}, "no empty directory is left, which would be a partition at the next start"
    (tmp_path / "data" / "orders-2").unlink()
    assert one(ask(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none
    assert len(broker.logs.partitions("orders")) == 4


def test_partitions_that_cannot_all_be_added_are_not_added(broker, tmp_path):
    ask(broker, create(new_topic("orders", 2)))
    (tmp_path / "data" / "orders-3").mkdir()
    failed = one(ask(broker, more(total("orders", 5))))
    assert failed.error_code is ErrorCode.kafka_storage_error
    assert broker.topics.get("orders").partitions == 2
    assert sorted(broker.logs.partitions("orders")) == [("orders", 0), ("orders", 1)]
    (tmp_path / "data" / "orders-3").rmdir()
    assert one(ask(broker, more(total("orders", 5)))).error_code is ErrorCode.none
    assert len(broker.logs.partitions("orders")) == 5


def fail_at(monkeypatch, partition):
    """create_log_files raises what nobody expects."""

    def fail(directory, *arguments, **options):
        if directory.name.endswith(f"-{partition}"):
            raise ValueError("a fault of ours")
        return create_log_files(directory, *arguments, **options)

    monkeypatch.setattr("kafkalog_broker.storage.new_partitions.create_log_files", fail)


def test_whatever_happens_while_a_topic_is_made_takes_it_back(broker, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        fail_at(patched, 2)
        failed = one(ask(broker, create(new_topic("orders", 4))))
    assert failed.error_code is ErrorCode.unknown_server_error
    assert "topic orders cannot be created: ValueError: a fault of ours" in failed.error_message
    assert "ValueError: a fault of ours" in caplog.text
    assert "orders" not in broker.topics
    assert not list((tmp_path / "data").glob("orders-?"))
    assert one(ask(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none


def test_whatever_happens_while_partitions_are_added_takes_them_back(broker, tmp_path, monkeypatch):
    ask(broker, create(new_topic("orders", 2)))
    with monkeypatch.context() as patched:
        fail_at(patched, 3)
        failed = one(ask(broker, more(total("orders", 5))))
    assert failed.error_code is ErrorCode.unknown_server_error
    assert broker.topics.get("orders").partitions == 2
    assert sorted(path.name for path in (tmp_path / "data").glob("orders-?")) == ["orders-0", "orders-1"]
    assert one(ask(broker, more(total("orders", 5)))).error_code is ErrorCode.none


@pytest.mark.parametrize("size", ["4", "8", "11"])
def test_an_index_too_small_for_an_entry_is_taken_and_the_topic_served(broker, size):
    """The smallest that Kafka allows is 4."""
    ask(broker, create(new_topic("orders", configs={"segment.index.bytes": size})))
    ask(broker, create(new_topic("payments")))
    for changed in (
        change(TOPIC, "payments", ("segment.index.bytes", SET, size)),
        change(BROKER, "", ("log.index.size.max.bytes", SET, size)),
    ):
        assert one(ask(broker, incremental(changed))).error_code is ErrorCode.none
    ask(broker, create(new_topic("invoices")))
    for topic in ("orders", "payments", "invoices"):
        for _ in range(2):
            append_records(broker.log(topic, 0), [(b"key", b"value")], broker.clock.now_ms())
            broker.log(topic, 0).local.roll(broker.clock.now_ms())
        assert broker.log(topic, 0).log_end_offset == 2


def test_a_record_that_was_acknowledged_meanwhile_keeps_a_topic_that_could_not_be_made_whole(broker, monkeypatch):
    create_log = broker.logs.create

    def create_and_produce(topic, index, *rest):
        if index == 2:
            raise BrokerError(ErrorCode.kafka_storage_error, "the disk is full")
        log = create_log(topic, index, *rest)
        append_records(log, [(b"key", b"value")], broker.clock.now_ms())
        return log

    monkeypatch.setattr(broker.logs, "create", create_and_produce)
    assert one(ask(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.kafka_storage_error
    assert broker.topics.get("orders").partitions == 4
    assert [broker.log("orders", index).log_end_offset for index in range(2)] == [1, 1]
    for index in (2, 3):
        with pytest.raises(BrokerError) as offline:
            broker.log("orders", index)
        assert offline.value.code is ErrorCode.kafka_storage_error


def test_the_directories_of_a_new_topic_are_synced_together(tmp_path, monkeypatch):
    synced: list[tuple[str, int]] = []

    def fsync_directory(path):
        if (count := len(list(path.glob("orders-*")))) and path.name not in (name for name, _ in synced):
            synced.append((path.name, count))

    monkeypatch.setattr("kafkalog_spark.format.atomic_file.fsync_directory", fsync_directory)
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        ask(broker, create(new_topic("orders", 20)))
        assert synced == [("a", 10), ("b", 10)], "partitions when a log directory was first synced"
        assert len(broker.logs.partitions("orders")) == 20


def test_a_log_directory_that_cannot_be_synced_gets_none_of_the_new_partitions(tmp_path, monkeypatch):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        monkeypatch.setattr("kafkalog_spark.format.atomic_file.fsync_directory", failing_for(tmp_path / "a"))
        assert one(ask(broker, create(new_topic("orders", 4)))).error_code is ErrorCode.none
        assert {broker.log("orders", index).directory.parent.name for index in range(4)} == {"b"}
        assert list((tmp_path / "a").glob("orders-*")) == []


def failing_for(directory):
    def fsync_directory(path):
        if path == directory:
            raise OSError(5, "Input/output error")

    return fsync_directory


def test_a_deleted_topic_is_gone_and_its_groups_are_told(broker, tmp_path):
    ask(broker, create(new_topic("orders", 2)))
    ask(broker, delete("orders"))
    assert "orders" not in broker.topics
    assert broker.logs.get("orders", 0) is None
    assert broker.groups.deleted_topics == ["orders"]
    assert not (tmp_path / "data" / "orders-0").exists()
    assert one(ask(broker, create(new_topic("orders", 1)))).error_code is ErrorCode.none


def test_topics_cannot_be_deleted_where_that_is_switched_off(tmp_path):
    with AdminBroker(tmp_path / "data", **{"delete.topic.enable": "false"}) as broker:
        ask(broker, create(new_topic("orders")))
        assert one(ask(broker, delete("orders"))).error_code is ErrorCode.topic_deletion_disabled
        assert one(ask(broker, delete("orders", versions=(1,)))).error_code is ErrorCode.invalid_request
        assert "orders" in broker.topics


def test_a_change_of_a_topic_holds_at_once_and_after_a_restart(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        ask(broker, create(new_topic("orders", 2)))
        log = broker.log("orders", 1)
        ask(broker, incremental(change(TOPIC, "orders", ("retention.ms", SET, "5"))))
        assert log.config.retention_ms == 5
    with AdminBroker(tmp_path / "data") as broker:
        assert broker.log("orders", 1).config.retention_ms == 5
        assert described(broker, TOPIC, "orders", "retention.ms") == "5"


def test_a_change_of_the_broker_holds_for_all_topics_that_do_not_say_otherwise(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        ask(broker, create(new_topic("orders"), new_topic("own", configs={"max.message.bytes": "7"})))
        ask(broker, incremental(change(BROKER, "", ("message.max.bytes", SET, "2000"))))
        assert broker.config.message_max_bytes == 2000
        assert broker.log("orders", 0).config.max_message_bytes == 2000
        assert broker.log("own", 0).config.max_message_bytes == 7
    with AdminBroker(tmp_path / "data") as broker:
        assert broker.dynamic_configs.default == {"message.max.bytes": "2000", "min.insync.replicas": "1"}


def test_what_is_only_validated_changes_nothing(broker):
    ask(broker, create(new_topic("orders")))
    ask(broker, incremental(change(TOPIC, "orders", ("retention.ms", SET, "5")), validate_only=True))
    ask(broker, replacing(alter(TOPIC, "orders", retention_ms="5"), validate_only=True))
    ask(broker, incremental(change(BROKER, "1", ("message.max.bytes", SET, "5")), validate_only=True))
    assert broker.topics.get("orders").configs == {}
    assert broker.log("orders", 0).config.retention_ms == -1
    assert broker.config.dynamic_broker == {}


def test_a_broker_setting_that_contradicts_a_topic_is_refused(broker):
    ask(broker, create(new_topic("orders", configs={"min.compaction.lag.ms": "500"})))
    answer = one(ask(broker, incremental(change(BROKER, "1", ("log.cleaner.max.compaction.lag.ms", SET, "100")))))
    assert answer.error_code is ErrorCode.invalid_request
    assert "min.compaction.lag.ms (500)" in answer.error_message
    assert broker.config.dynamic_broker == {}


@pytest.mark.parametrize(
    ("operations", "code", "said"),
    [
        ([("retention.ms", 9, "1")], ErrorCode.invalid_request, "Unknown operation 9"),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config, "Can't APPEND to key retention.ms"),
        ([("no.such", SET, "1")], ErrorCode.invalid_config, "Unknown topic config name: no.such"),
        ([("retention.ms", SET, "x")], ErrorCode.invalid_config, "Not a number of type LONG"),
    ],
)
def test_a_wrong_change_is_refused_and_others_are_made(broker, operations, code, said):
    ask(broker, create(new_topic("bad"), new_topic("good")))
    answer = ask(
        broker, incremental(change(TOPIC, "bad", *operations), change(TOPIC, "good", ("retention.ms", SET, "5")))
    )
    bad, good = answer.responses
    assert (bad.error_code, good.error_code) == (code, ErrorCode.none)
    assert said in bad.error_message
    assert broker.topics.get("bad").configs == {}
    assert broker.topics.get("good").configs == {"retention.ms": "5"}


def test_log_directories_are_cordoned_on_a_single_broker_only(broker, tmp_path):
    """KafkaConfig: of all dynamic properties without a listener, cordoned.log.dirs alone is a single broker's."""
    cordoned = ("cordoned.log.dirs", SET, str(tmp_path))
    refused = one(ask(broker, incremental(change(BROKER, "", cordoned))))
    assert refused.error_code is ErrorCode.invalid_request
    assert "default cluster level, broker id must be specified: [cordoned.log.dirs]" in refused.error_message
    assert one(ask(broker, incremental(change(BROKER, "1", cordoned)))).error_code is ErrorCode.none


def test_unlike_kafka_an_unknown_broker_property_is_refused(broker):
    answer = one(ask(broker, incremental(change(BROKER, "1", ("message.max.byte", SET, "1")))))
    assert answer.error_code is ErrorCode.invalid_request
    assert "message.max.byte" in answer.error_message


def test_every_logger_of_the_broker_is_shown(broker):
    package = Path(kafkalog_broker.__file__).parent
    logging_modules = {
        ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for file in package.rglob("*.py")
        if "getLogger(__name__)" in file.read_text()
    }
    for name in logging_modules:
        importlib.import_module(name)  # as the running broker has
    names = set(loggers())
    assert logging_modules <= names
    assert {"root", "kafkalog_broker", "kafkalog_broker.groups"} <= names


def test_levels_of_loggers_are_shown_and_set(broker):
    logger = logging.getLogger("kafkalog_broker.groups")
    before = logger.level
    try:
        answer = one(ask(broker, incremental(change(BROKER_LOGGER, "1", ("kafkalog_broker.groups", SET, "ERROR")))))
        assert answer.error_code is ErrorCode.none
        assert logger.level == logging.ERROR
        assert described(broker, BROKER_LOGGER, "1", "kafkalog_broker.groups") == "ERROR"
        wrong = one(ask(broker, incremental(change(BROKER_LOGGER, "1", ("kafkalog_broker.groups", SET, "LOUD")))))
        assert wrong.error_code is ErrorCode.invalid_config
        ask(broker, incremental(change(BROKER_LOGGER, "1", ("kafkalog_broker.groups", DELETE, None))))
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)


def test_metadata_creates_what_is_missing_where_that_is_allowed(broker):
    answer = ask(broker, metadata(["new", "a/b"], create_missing=True))
    by_name = {topic.name: topic for topic in answer.topics}
    assert by_name["new"].error_code is ErrorCode.none
    assert by_name["new"].partitions[0].leader_id == 1
    assert by_name["a/b"].error_code is ErrorCode.invalid_topic_exception
    assert set(broker.topics.topics) == {"new"}


def test_metadata_creates_nothing_unasked_or_that_collides_or_is_internal(broker):
    ask(broker, create(new_topic("a.b")))
    for wanted, create_missing in ((["x"], False), (["a_b"], True), (["__consumer_offsets"], True)):
        topic = one(ask(broker, metadata(wanted, create_missing=create_missing)))
        assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert set(broker.topics.topics) == {"a.b"}


def test_old_versions_of_metadata_create_always_and_only_where_the_broker_allows_it(tmp_path):
    for allowed in ("true", "false"):
        with AdminBroker(tmp_path / allowed, **{"auto.create.topics.enable": allowed, "num.partitions": "2"}) as broker:
            topic = one(ask(broker, metadata(["new"]), 3))
            assert (topic.error_code is ErrorCode.none) == (allowed == "true")
            assert len(topic.partitions) == (2 if allowed == "true" else 0)


def test_records_of_a_compacted_or_internal_topic_cannot_be_deleted(broker):
    ask(broker, create(new_topic("compacted", configs={"cleanup.policy": "compact"}), new_topic("__consumer_offsets")))
    for name, code in (
        ("compacted", ErrorCode.policy_violation),
        ("__consumer_offsets", ErrorCode.invalid_topic_exception),
    ):
        step = (DELETE_RECORDS, (2,), {"topics": [records(name, p0=-1)], "timeout": 1})
        assert one(ask(broker, step)).partitions[0].error_code is code


def test_each_log_directory_is_described_with_its_partitions(tmp_path):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        ask(broker, create(new_topic("orders", 4)))
        answer = ask(broker, (DESCRIBE_LOG_DIRS, (5,), {"topics": None}))
        assert [result.log_dir for result in answer.results] == [str(tmp_path / "a"), str(tmp_path / "b")]
        held = [[p.partition_index for topic in result.topics for p in topic.partitions] for result in answer.results]
        assert sorted(held[0] + held[1]) == [0, 1, 2, 3]
        assert len(held[0]) == 2
        assert all(result.usable_bytes > 0 for result in answer.results)


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ("0", "Log cleaner threads should be at least 1"),
        ("3", "Log cleaner threads cannot be increased to more than double the current value 1"),
        ("2", None),
    ],
)
def test_cleaner_threads_change_by_a_factor_of_two_at_most(broker, wanted, what):
    found = one(ask(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, wanted)))))
    assert found.error_message == what
    assert found.error_code is (ErrorCode.none if what is None else ErrorCode.invalid_request)
    if what is None:
        again = one(ask(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, "4")))))
        assert again.error_code is ErrorCode.none
        down = one(ask(broker, incremental(change(BROKER, "1", ("log.cleaner.threads", SET, "1")))))
        assert down.error_message == "Log cleaner threads cannot be reduced to less than half the current value 4"


@pytest.mark.parametrize(("name", "now"), [("num.io.threads", 8), ("background.threads", 10)])
def test_pools_of_threads_change_by_a_factor_of_two_at_most(broker, name, now):
    def changed(wanted):
        return one(ask(broker, incremental(change(BROKER, "1", (name, SET, str(wanted))))))

    refused = changed(2 * now + 1)
    assert refused.error_code is ErrorCode.invalid_request
    what = f"failed for {name}={2 * now + 1}, value should not be greater than double the current value {now}"
    assert what in refused.error_message
    assert f"value should be at least half the current value {now}" in changed(1).error_message
    assert changed(2 * now).error_code is ErrorCode.none


@pytest.mark.parametrize("resource", ["", "1"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max.connections", "Invalid max.connections 0"),
        ("max.connection.creation.rate", "Invalid max.connection.creation.rate 0"),
        ("max.connections.per.ip", "max.connections.per.ip can be set to zero only if"),
    ],
)
def test_a_change_that_would_lock_everybody_out_is_refused(broker, resource, name, said):
    refused = one(ask(broker, incremental(change(BROKER, resource, (name, SET, "0")))))
    assert refused.error_code is ErrorCode.invalid_request
    assert refused.error_message.startswith(said)
    assert described(broker, BROKER, "1", name) == str(2**31 - 1)


def test_partitions_stay_in_their_log_directory(tmp_path, caplog):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        ask(broker, create(new_topic("orders", 2)))
        own, other = (str(where.path) for index in (0, 1) if (where := broker.logs.log_dir("orders", index)))
        assert own != other
        dirs = [{"path": path, "topics": [{"name": "orders", "partitions": [0]}]} for path in (own, other)]
        codes = [ask(broker, (34, (2,), {"dirs": [one]})).results[0].partitions[0].error_code for one in dirs]
        assert codes == [ErrorCode.none, ErrorCode.policy_violation]
    assert f"orders-0 is in {own} and is not moved to {other}" in caplog.text


def test_this_broker_is_not_unregistered(broker):
    answer = ask(broker, (64, (0,), {"broker_id": broker.node_id}))
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.invalid_request,
        "Broker ID 1 is this broker, which is running",
    )
