"""commitGroup: what is committed when, what a broker that fails costs, and which options it takes."""

from __future__ import annotations

import logging
import pickle
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from kafkalog_spark.errors import GroupCommitFailed, OptionError
from kafkalog_spark.source.group_client import AdminGroupClient, Errors
from kafkalog_spark.source.group_commits import RETRY_SECONDS, GroupCommitter
from kafkalog_spark.source.offsets import Offsets
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import CommitGroup
from kafkalog_spark.source.stream_reader import KafkaLogStreamReader
from tests.source.helpers.made_logs import append, numbers
from tests.source.helpers.stream_driver import Query

GIVEN = {"path": "/logs", "subscribe": "t", "commitGroup": "etl", "kafka.bootstrap.servers": "b1:9092,b2:9092"}


class Coordinator:
    """A group coordinator: takes commits and remembers them. `answers`: what it says next, one for each commit."""

    def __init__(self, *answers: Errors | GroupCommitFailed | None) -> None:
        self.asked: list[Offsets] = []
        self.group: Offsets = {}
        self.answers = list(answers)
        self.late: Future[Errors] | None = None

    def commit(self, group: str, offsets: Offsets) -> Future[Errors]:
        assert group == "etl"
        self.asked.append(dict(offsets))
        answer = self.answers.pop(0) if self.answers else {}
        result: Future[Errors] = Future()
        if answer is None:
            self.late = result
        elif isinstance(answer, GroupCommitFailed):
            result.set_exception(answer)
        else:
            self.group |= {tp: offset for tp, offset in offsets.items() if tp not in answer}
            result.set_result(answer)
        return result

    def last_connection_error(self) -> str:
        return "b1:9092: Connection refused"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def committer(coordinator: Coordinator, *, fail: bool = False, clock: Clock | None = None) -> GroupCommitter:
    options = CommitGroup("etl", {"bootstrap.servers": "b1:9092"}, fail)
    return GroupCommitter(options, cast(AdminGroupClient, coordinator), clock or Clock())


def test_query_commits_its_position_once_and_then_only_changes() -> None:
    coordinator = Coordinator()
    commits = committer(coordinator)
    commits.commit({("t", 0): 10, ("t", 1): 5})
    commits.commit({("t", 0): 10, ("t", 1): 5})
    commits.commit({("t", 0): 12, ("t", 1): 5})
    commits.commit({("t", 0): 3, ("t", 1): 5})  # created again: where the query is
    assert coordinator.asked == [{("t", 0): 10, ("t", 1): 5}, {("t", 0): 12}, {("t", 0): 3}]


def test_earliest_and_latest_are_not_committed() -> None:
    coordinator = Coordinator()
    committer(coordinator).commit({("t", 0): -1, ("t", 1): -2})
    assert coordinator.asked == []


def test_failing_broker_is_warned_of_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    refused, clock = GroupCommitFailed("Local: Timed out"), Clock()
    coordinator = Coordinator(refused, GroupCommitFailed("Local: Timed out"))
    commits = committer(coordinator, clock=clock)
    with caplog.at_level(logging.WARNING):
        commits.commit({("t", 0): 10})
        commits.commit({("t", 0): 11})
        assert len(coordinator.asked) == 1, "not before RETRY_SECONDS"
        clock.now += RETRY_SECONDS
        commits.commit({("t", 0): 12})  # sent, and not waited for
        commits.commit({("t", 0): 12})
        clock.now += RETRY_SECONDS
        commits.commit({("t", 0): 13})
        commits.commit({("t", 0): 13})
    failed, again = caplog.messages
    assert failed == (
        "offsets were not committed to consumer group 'etl': Local: Timed out (b1:9092: Connection refused); "
        "brokers: b1:9092; the query continues, and the commit will be retried"
    )
    assert again == "committing offsets to consumer group 'etl' works again"
    assert coordinator.group == {("t", 0): 13}


def test_refused_partitions_do_not_prevent_commits_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = "Broker: Unknown topic or partition"
    coordinator, clock = Coordinator({("t", 1): unknown, ("t", 2): unknown}), Clock()
    commits = committer(coordinator, clock=clock)
    with caplog.at_level(logging.WARNING):
        commits.commit({("t", 0): 10, ("t", 1): 5, ("t", 2): 7})
    assert caplog.messages[0].startswith(
        f"t-1: offsets were not committed to consumer group 'etl': {unknown}, and 1 more partitions"
    )
    clock.now += RETRY_SECONDS
    commits.commit({("t", 0): 10, ("t", 1): 5, ("t", 2): 7})
    assert coordinator.asked[1] == {("t", 1): 5, ("t", 2): 7}


def test_fail_on_commit_error_fails_the_query() -> None:
    with pytest.raises(GroupCommitFailed, match=r"not committed to consumer group 'etl': Local: Timed out .*b1:9092$"):
        committer(Coordinator(GroupCommitFailed("Local: Timed out")), fail=True).commit({("t", 0): 10})


def test_fail_on_commit_error_fails_without_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog_spark.source.group_commits.REQUEST_SECONDS", 0.0)
    with pytest.raises(GroupCommitFailed, match="'etl': no response within 0 s"):
        committer(Coordinator(None), fail=True).commit({("t", 0): 10})


def test_late_response_is_handled_by_a_later_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog_spark.source.group_commits.COMMIT_WAIT_SECONDS", 0.0)
    coordinator = Coordinator(None)
    commits = committer(coordinator)
    commits.commit({("t", 0): 10})
    commits.commit({("t", 0): 11})
    assert coordinator.asked == [{("t", 0): 10}], "one at a time"
    assert coordinator.late is not None
    coordinator.late.set_result({})
    commits.commit({("t", 0): 11})
    assert coordinator.asked[1:] == [{("t", 0): 11}]


def test_close_after_a_late_response_sends_the_position_that_was_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog_spark.source.group_commits.COMMIT_WAIT_SECONDS", 0.0)
    coordinator = Coordinator(None)
    commits = committer(coordinator)
    commits.commit({("t", 0): 10})
    commits.commit({("t", 0): 11})
    assert coordinator.late is not None
    coordinator.late.set_result({})
    commits.close()
    assert coordinator.asked == [{("t", 0): 10}, {("t", 0): 11}]


def test_close_sends_nothing_more_while_a_response_is_missing_or_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkalog_spark.source.group_commits.COMMIT_WAIT_SECONDS", 0.0)
    for response in (None, GroupCommitFailed("Local: Timed out")):
        coordinator = Coordinator(response)
        commits = committer(coordinator)
        commits.commit({("t", 0): 10})
        commits.commit({("t", 0): 11})
        commits.close()
        assert coordinator.asked == [{("t", 0): 10}]


@pytest.fixture
def reader_commits(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    coordinator = Coordinator()
    monkeypatch.setattr("kafkalog_spark.source.group_client.AdminGroupClient", lambda settings: coordinator)
    return coordinator


def of_a_group(path: Path, **options: object) -> Query:
    given: dict[str, Any] = {"commitGroup": "etl", "kafka.bootstrap.servers": "b1:9092", **options}
    return Query(path, **given)


def test_batch_is_committed_only_after_it_has_finished(tmp_path: Path, reader_commits: Coordinator) -> None:
    append(tmp_path, "t", 0, numbers(0, 10), batch=1)
    query = of_a_group(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    query.batch()
    assert reader_commits.group == {}, "Spark has not written down that it is done"
    query.batch()
    assert reader_commits.group == {("t", 0): 4}
    query.batch()
    query.batch()
    assert reader_commits.group == {("t", 0): 10}, "nothing is new: the last batch is committed too"
    append(tmp_path, "t", 0, numbers(10, 12), batch=1)
    query.batch()
    again = of_a_group(tmp_path, checkpoint=query.checkpoint)
    assert again.batch() is None
    assert reader_commits.group == {("t", 0): 12}, "a restart catches up"


def test_available_now_commits_everything_it_read(tmp_path: Path, reader_commits: Coordinator) -> None:
    append(tmp_path, "t", 0, numbers(0, 10), batch=1)
    of_a_group(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=4, trigger_kind="availableNow").trigger()
    assert reader_commits.group == {("t", 0): 10}


def test_pickled_reader_contains_no_password(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    secret = {"kafka.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="do-not-tell";'}
    reader = of_a_group(tmp_path, **secret).reader
    assert isinstance(reader, KafkaLogStreamReader)
    assert b"do-not-tell" not in pickle.dumps(reader)
    assert "do-not-tell" not in repr(reader._options)
    committer = reader.committer
    assert committer is not None
    assert committer._settings.settings["sasl.password"] == "do-not-tell"


def test_client_settings_combine_librdkafkas_and_sparks() -> None:
    given = {
        **GIVEN,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.ssl.ca.location": "/ca.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.max.poll.records": "500",
        "failOnCommitError": "true",
    }
    options = parse_read_options(given, streaming=True)
    assert options.stream is not None
    assert options.stream.commit_group == CommitGroup(
        "etl",
        {
            "bootstrap.servers": "b1:9092,b2:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
        },
        True,
    )
    assert options.ignored == ("kafka.max.poll.records",)


REFUSED: list[tuple[dict[str, str], bool, str]] = [
    ({}, False, "option 'commitGroup' applies to streams only: a batch query keeps no position; use readStream"),
    ({"kafka.bootstrap.servers": ""}, True, "option 'commitGroup' requires 'kafka.bootstrap.servers': a broker keeps"),
    ({"commitGroup": ""}, True, "option 'commitGroup' must be the id of a consumer group, got ''"),
    ({"kafka.sasl.jaas.config": "nonsense"}, True, "option 'kafka.sasl.jaas.config' names no user and password"),
]


@pytest.mark.parametrize(("changed", "streaming", "text"), REFUSED, ids=[text[:60] for _, _, text in REFUSED])
def test_invalid_commit_group_options_are_refused(changed: dict[str, str], streaming: bool, text: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_read_options(GIVEN | changed, streaming=streaming)
    assert str(refused.value).startswith(text)


def test_fail_on_commit_error_alone_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'failOnCommitError' requires 'commitGroup'"):
        parse_read_options({"path": "/logs", "subscribe": "t", "failOnCommitError": "true"}, streaming=True)


def test_setting_unknown_to_librdkafka_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match=r"an option 'kafka\.\*' cannot be used: .*ssl\.no\.such"):
        AdminGroupClient({"bootstrap.servers": "127.0.0.1:1", "ssl.no.such": "x"})


def test_missing_client_package_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(OptionError, match=r"needs the package confluent-kafka: .*pip install 'confluent-kafka>=2.5'"):
        AdminGroupClient({"bootstrap.servers": "127.0.0.1:1"})


def test_invalid_client_settings_fail_the_query_at_its_start(tmp_path: Path) -> None:
    append(tmp_path, "t", 0, numbers(0, 3))
    wrong = {"kafka.sasl.mechanisms": "NO-SUCH", "kafka.security.protocol": "SASL_PLAINTEXT"}
    with pytest.raises(OptionError, match=r"cannot be used: .*Unsupported SASL mechanism: NO-SUCH"):
        of_a_group(tmp_path, **wrong).batch()


def test_kafka_options_without_a_commit_group_are_ignored() -> None:
    given: dict[str, Any] = {name: text for name, text in GIVEN.items() if name != "commitGroup"}
    options = parse_read_options(given, streaming=True)
    assert options.stream is not None
    assert (options.stream.commit_group, options.ignored) == (None, ("kafka.bootstrap.servers",))
