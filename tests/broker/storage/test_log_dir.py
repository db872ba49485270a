from __future__ import annotations

import logging
import uuid

import pytest

from kafkalog_broker.storage.log_directories import LogDirError, open_log_dirs
from kafkalog_spark.errors import LogDirLocked
from kafkalog_spark.format.meta_properties import read_meta_properties
from kafkalog_spark.format.partition_metadata import new_uuid, uuid_to_text
from kafkalog_spark.log.write.log_dir_lock import LogDirLock

NOW = 1_700_000_000_000


def opened(*paths, node_id=1, cluster_id=None):
    return open_log_dirs(paths, node_id, NOW, cluster_id)


def test_new_log_directories_get_one_cluster_id_and_a_directory_id_each(tmp_path):
    dirs = opened(tmp_path / "a", tmp_path / "deep" / "b")
    metas = [meta for log_dir in dirs.all if (meta := read_meta_properties(log_dir.path / "meta.properties"))]
    assert {meta.cluster_id for meta in metas} == {dirs.cluster_id}
    assert [meta.directory_id for meta in metas] == [log_dir.id for log_dir in dirs.all]
    assert metas[0].directory_id != metas[1].directory_id
    assert {(meta.version, meta.node_id) for meta in metas} == {(1, 1)}
    dirs.close()


def test_log_directory_keeps_its_ids_after_a_restart(tmp_path):
    first = opened(tmp_path)
    first.close()
    text = (tmp_path / "meta.properties").read_bytes()
    second = opened(tmp_path)
    assert (second.cluster_id, second.all[0].id) == (first.cluster_id, first.all[0].id)
    assert (tmp_path / "meta.properties").read_bytes() == text
    second.close()


def test_kafka_log_directory_keeps_its_meta_properties(tmp_path, golden):
    text = (golden / "meta.properties").read_bytes()
    (tmp_path / "meta.properties").write_bytes(text)
    dirs = opened(tmp_path)
    assert dirs.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert (tmp_path / "meta.properties").read_bytes() == text
    dirs.close()


def test_new_log_directory_gets_the_cluster_id_of_the_others(tmp_path):
    first = opened(tmp_path / "a")
    first.close()
    both = opened(tmp_path / "b", tmp_path / "a")
    assert both.cluster_id == first.cluster_id
    both.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=1\nnode.id=2\ncluster.id=c\n", r"belongs to node 2, this broker is node 1"),
        ("version=1\nnode.id=1\ncluster.id=c\n", r"belongs to cluster c, the configuration says mine"),
        ("version=1\nnode.id=one\ncluster.id=c\n", r"expected a 32-bit integer"),
        ("node.id=1\n", r"no key 'version'"),
        ("version=9\n", r"version 9"),
    ],
)
def test_log_directory_with_foreign_or_invalid_meta_properties_is_refused_and_unlocked(tmp_path, text, message):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(LogDirError, match=message) as caught:
        opened(tmp_path, cluster_id="mine")
    assert "meta.properties" in str(caught.value)
    LogDirLock.acquire(tmp_path).release()


def test_log_directories_of_two_clusters_are_refused(tmp_path):
    opened(tmp_path / "a").close()
    opened(tmp_path / "b").close()
    with pytest.raises(LogDirError, match=r"belongs to cluster .*must come from one cluster"):
        opened(tmp_path / "a", tmp_path / "b")


def test_parent_of_a_log_directory_is_refused_and_left_unchanged(tmp_path):
    opened(tmp_path / "kafka-logs").close()
    with pytest.raises(LogDirError) as caught:
        opened(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: is not a log directory, but kafka-logs in it is a log directory; use {tmp_path / 'kafka-logs'}"
    )
    assert not (tmp_path / "meta.properties").exists()
    LogDirLock.acquire(tmp_path).release()


def test_log_directory_that_contains_another_one_is_opened_again(tmp_path):
    opened(tmp_path).close()
    opened(tmp_path / "other").close()
    opened(tmp_path).close()


def test_partition_directory_as_log_directory_is_refused(tmp_path, golden_copy):
    partition = golden_copy("kafka-4.3.0", "codec-none-0") / "codec-none-0"
    with pytest.raises(LogDirError, match=f"codec-none-0: is a partition's directory; use {partition.parent}$"):
        opened(partition)
    assert not (partition / "meta.properties").exists()


def test_copied_log_directory_with_the_same_directory_id_is_refused(tmp_path):
    opened(tmp_path / "a").close()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(LogDirError, match=r"directory\.id .* is also that of"):
        opened(tmp_path / "a", tmp_path / "b")


def test_failed_log_directory_is_offline_and_the_other_is_served(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.ERROR):
        dirs = opened(tmp_path / "file" / "a", tmp_path / "b")
    assert [log_dir.is_online for log_dir in dirs.all] == [False, True]
    assert caplog.text.count("are offline") == 1
    assert dirs.online == [dirs.all[1]]
    dirs.close()


def test_start_without_an_online_log_directory_fails(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match="no log directory works"):
        opened(tmp_path / "file" / "a")
    with pytest.raises(LogDirError, match="no log directory is given"):
        opened()


def test_locked_log_directory_fails_the_start_and_unlocks_the_others(tmp_path):
    dirs = opened(tmp_path / "b")
    with pytest.raises(LogDirLocked):
        opened(tmp_path / "a", tmp_path / "b")
    LogDirLock.acquire(tmp_path / "a").release()
    dirs.close()


def test_log_directory_configured_twice_is_opened_once(tmp_path):
    dirs = opened(tmp_path, tmp_path / "x" / "..")
    assert len(dirs.all) == 1
    dirs.close()


def test_directory_id_never_begins_with_a_dash(monkeypatch):
    given = iter([uuid.UUID(bytes=b"\xfb" + bytes(15)), uuid.UUID(bytes=bytes(15) + b"\x01")])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(given))
    assert not uuid_to_text(new_uuid()).startswith("-")
    with pytest.raises(StopIteration):
        next(given)
