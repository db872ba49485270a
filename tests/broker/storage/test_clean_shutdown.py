from __future__ import annotations

from kafkalog_broker.storage.clean_shutdown import take_clean_shutdown, write_clean_shutdown

FILE = ".kafka_cleanshutdown"


def test_the_marker_is_read_once(tmp_path):
    assert not take_clean_shutdown(tmp_path)
    write_clean_shutdown(tmp_path, 7)
    assert take_clean_shutdown(tmp_path)
    assert not (tmp_path / FILE).exists()
    assert not take_clean_shutdown(tmp_path)


def test_the_marker_is_what_kafka_writes(tmp_path, golden):
    write_clean_shutdown(tmp_path, 303)
    assert (tmp_path / FILE).read_bytes() == (golden / FILE).read_bytes()


def test_presence_decides_whatever_is_in_it(tmp_path):
    (tmp_path / FILE).write_bytes(b"")
    assert take_clean_shutdown(tmp_path)
