"""DescribeLogDirs and AlterReplicaLogDirs with two log directories."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker, send
from tests.broker.api.helpers.admin_scenario import DESCRIBE_LOG_DIRS, create, new_topic


def test_log_directories_are_described_with_their_partitions(tmp_path):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        send(broker, create(new_topic("orders", 4)))
        answer = send(broker, (DESCRIBE_LOG_DIRS, (5,), {"topics": None}))
        assert [result.log_dir for result in answer.results] == [str(tmp_path / "a"), str(tmp_path / "b")]
        held = [[p.partition_index for topic in result.topics for p in topic.partitions] for result in answer.results]
        assert sorted(held[0] + held[1]) == [0, 1, 2, 3]
        assert len(held[0]) == 2
        assert all(result.usable_bytes > 0 for result in answer.results)


def test_partition_is_not_moved_to_another_log_directory(tmp_path, caplog):
    with AdminBroker(tmp_path / "a", tmp_path / "b") as broker:
        send(broker, create(new_topic("orders", 2)))
        own, other = (str(where.path) for index in (0, 1) if (where := broker.logs.log_dir("orders", index)))
        assert own != other
        dirs = [{"path": path, "topics": [{"name": "orders", "partitions": [0]}]} for path in (own, other)]
        codes = [send(broker, (34, (2,), {"dirs": [one]})).results[0].partitions[0].error_code for one in dirs]
        assert codes == [ErrorCode.none, ErrorCode.policy_violation]
    assert f"orders-0 is in {own} and is not moved to {other}" in caplog.text
