"""kafkalog-check and kafkalog-cat on a directory of a broker with remote storage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.remote.storage_location import open_remote_storage, settle_location
from kafkalog_broker.testing import running_broker
from kafkalog_spark.cli import cat, check
from kafkalog_spark.format.names import REMOTE_STORAGE_FILE
from tests.broker.remote.helpers.tiered_broker import SMALL, local_logs, produce, tiered_properties, wait_until


@pytest.mark.parametrize("layout", ["aiven", "local-tiered"])
def test_check_of_a_directory_whose_tier_is_still_empty_finds_no_error(
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


def test_check_of_a_directory_whose_tier_is_missing_with_records_of_the_log_finds_an_error(
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


def test_recorded_remote_storage_is_readable_by_the_brokers_user_only_and_has_no_secret(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    properties = {
        "log.dirs": str(data),
        "remote.log.storage.system.enable": "true",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "rsm.config.storage.s3.bucket.name": "tier",
        "rsm.config.storage.aws.access.key.id": "secret-id",
        "rsm.config.storage.aws.secret.access.key": "secret-key",
        "rsm.config.encryption.key.pairs.one.passphrase": "secret-phrase",
    }
    config = BrokerConfig.from_properties(properties)
    storage = open_remote_storage(lambda: config, data, [data])
    metadata = RemoteLogMetadataManager(1, None, None, None)  # type: ignore[arg-type]
    settle_location(storage, metadata, [data], 0)
    file = data / REMOTE_STORAGE_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    assert "storage.s3.bucket.name=tier" in file.read_text()
