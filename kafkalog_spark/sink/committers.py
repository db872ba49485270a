"""Construction of committers for log directories on a disk and in a bucket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from kafkalog_spark.errors import OptionError
from kafkalog_spark.sink.bucket_commit_log import BucketCommitLog
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_target import BucketTarget
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.directory_locks import COMMIT_WAIT_SECONDS
from kafkalog_spark.sink.local_commit_log import LocalCommitLog
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.local_target import LocalTarget
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import is_local
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of


def committer_of(path: str, storage: StorageOptions) -> Committer:
    """Return the committer of a log directory.

    Args:
        path: Local path or normalised URL.
        storage: Storage options for a URL.

    Raises:
        OptionError: If the path or an option is invalid.
    """
    if is_local(path):
        try:
            return local_committer(LocalDirectory(Path(os.path.abspath(path))))
        except OSError as error:
            raise OptionError(f"option 'path': {error}") from error
    store = store_of(path, storage)
    assert isinstance(store, ObjectStore), path
    return bucket_committer(BucketDirectory(path, store))


def local_committer(
    directory: LocalDirectory, now_s: Callable[[], float] = time.time, wait_s: float = COMMIT_WAIT_SECONDS
) -> Committer:
    """Return the committer of a log directory on a disk. `now_s` and `wait_s` are those of LocalTarget."""
    return Committer(LocalCommitLog(directory), LocalTarget(directory, now_s, wait_s))


def bucket_committer(directory: BucketDirectory, tries: int = 20) -> Committer:
    """Return the committer of a log directory in a bucket. `tries` is that of Committer."""
    return Committer(BucketCommitLog(directory), BucketTarget(directory), tries=tries)
