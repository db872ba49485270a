"""kafkalog-check and kafkalog-cat on a directory of a broker with remote storage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog_broker.testing import running_broker
from kafkalog_spark.cli import cat, check
from tests.broker.remote.helpers.tiered_broker import SMALL, local_logs, produce, tiered_properties, wait_until


@pytest.mark.parametrize("layout", ["aiven", "local-tiered"])
def test_check_of_a_log_directory_with_an_empty_tier_reports_no_error(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, remote = tmp_path / "data", tmp_path / "remote"
    remote.mkdir()
    aiven = {"remote.log.storage.system.enable": True, "rsm.config.storage.root": remote}
    properties = aiven if layout == "aiven" else tiered_properties(remote)
    with running_broker(properties, topics={"orders": SMALL}, log_dir=data) as broker:
        produce(broker.bootstrap, "orders", range(1))
    assert cat.main([str(data), "-t", "orders"]) == 0
    assert len(capsys.readouterr().out) == 1001
    assert check.main([str(data)]) == 0
    assert ": 0 errors, 0 notes\n" in capsys.readouterr().out


def test_check_of_a_log_directory_whose_remote_records_are_missing_reports_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, remote = tmp_path / "data", tmp_path / "remote"
    with running_broker(topics={"orders": SMALL}, log_dir=data, tiered=remote) as broker:
        produce(broker.bootstrap, "orders", range(40))
        wait_until(lambda: len(local_logs(broker, "orders")) == 1, "segments are not copied")
    assert check.main([str(data)]) == 0
    shutil.rmtree(remote)
    capsys.readouterr()
    assert check.main([str(data)]) == 1
    assert "the partition's remote segments cannot be read" in capsys.readouterr().out
