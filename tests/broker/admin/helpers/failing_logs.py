"""Failures while the logs of new partitions are created."""

from __future__ import annotations

import pytest

from kafkalog_broker.storage.partition.loaded_log import create_log_files


def fail_log_creation(monkeypatch: pytest.MonkeyPatch, partition: int) -> None:
    """Let the creation of this partition's files raise an unexpected exception."""

    def fail(directory, *arguments, **options):
        if directory.name.endswith(f"-{partition}"):
            raise ValueError("a fault of ours")
        return create_log_files(directory, *arguments, **options)

    monkeypatch.setattr("kafkalog_broker.storage.new_partitions.create_log_files", fail)
