"""Checkpoints in an object store that fails: no request that fails is taken for a missing file."""

from __future__ import annotations

import errno
import os
from typing import cast

import pytest

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format.checkpoint import LOG_START_OFFSET_CHECKPOINT
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.replica_choice import choose_leading_copy
from kafkalog_spark.log.read.state_files import leader_epochs, offset_checkpoint
from kafkalog_spark.store.interface import Store


class FailingStore:
    """An object store whose every read fails with the same error."""

    is_remote = True

    def __init__(self, number: int) -> None:
        self._number = number

    def read_all(self, path: str, most: int) -> bytes:
        raise OSError(self._number, os.strerror(self._number), path)


def failing(number: int) -> Store:
    return cast(Store, FailingStore(number))


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EIO, errno.ECONNRESET])
def test_checkpoint_in_a_store_that_fails_is_not_taken_for_an_empty_one(number: int) -> None:
    store = failing(number)
    with pytest.raises(NotALogDirectory, match="the leader epochs cannot be read"):
        leader_epochs(store, "s3://bucket/data/orders-0")
    with pytest.raises(NotALogDirectory, match="s3://bucket/data/log-start-offset-checkpoint"):
        offset_checkpoint(store, "s3://bucket/data", LOG_START_OFFSET_CHECKPOINT)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES])
def test_checkpoint_that_is_missing_or_forbidden_is_empty(number: int) -> None:
    assert leader_epochs(failing(number), "s3://bucket/data/orders-0") == []
    assert offset_checkpoint(failing(number), "s3://bucket/data", LOG_START_OFFSET_CHECKPOINT) == {}


def test_topic_id_in_a_store_that_fails_is_not_taken_for_a_missing_one() -> None:
    with pytest.raises(NotALogDirectory, match=r"orders-0: the topic ID cannot be read: .*partition\.metadata"):
        PartitionLocation("orders", 0, "s3://bucket/data/orders-0", failing(errno.ETIMEDOUT)).topic_id()
    assert PartitionLocation("orders", 0, "s3://bucket/data/orders-0", failing(errno.ENOENT)).topic_id() is None


def test_replica_with_unreadable_leader_epochs_is_not_skipped() -> None:
    places = [
        PartitionLocation("orders", 0, f"s3://bucket/{broker}/orders-0", failing(errno.ETIMEDOUT)) for broker in "ab"
    ]
    with pytest.raises(NotALogDirectory):
        choose_leading_copy(places, lambda place: 0, always_find_end=False)
