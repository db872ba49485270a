"""Construction of committers for log directories on a disk and in a bucket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format import layout
from kafkalog_spark.sink.bucket_commit_log import BucketCommitLog
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_log_ends import BucketLogEnds
from kafkalog_spark.sink.bucket_segment_publisher import BucketSegmentPublisher
from kafkalog_spark.sink.bucket_stage import BucketStage
from kafkalog_spark.sink.bucket_staged_jobs import BucketStagedJobs
from kafkalog_spark.sink.bucket_staged_segments import BucketStagedSegments
from kafkalog_spark.sink.commit import Committer
from kafkalog_spark.sink.directory_locks import COMMIT_WAIT_SECONDS, DirectoryLocks
from kafkalog_spark.sink.local_commit_log import LocalCommitLog
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.local_log_ends import LocalLogEnds
from kafkalog_spark.sink.local_segment_publisher import LocalSegmentPublisher
from kafkalog_spark.sink.local_stage import LocalStage
from kafkalog_spark.sink.local_staged_jobs import LocalStagedJobs
from kafkalog_spark.sink.local_staged_segments import LocalStagedSegments
from kafkalog_spark.sink.write_target import WriteTarget
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import is_local
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

_LOCAL_JOIN_BYTES = 4 << 20
"""A segment for each task of each micro-batch would leave a broker with many thousands of files. Larger files are not
joined, because joining copies and flushes them a second time while the commit waits."""


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
    """Return the committer of a log directory on a disk.

    Args:
        directory: The log directory.
        now_s: Returns seconds since 1970.
        wait_s: Longest wait for another sink.
    """
    return Committer(
        WriteTarget(
            directory=directory,
            locks=DirectoryLocks(directory.log_dir, wait_s),
            log=LocalCommitLog(directory),
            jobs=LocalStagedJobs(directory, now_s),
            new_stage=LocalStage,
            join_bytes=_LOCAL_JOIN_BYTES,
            log_ends=LocalLogEnds(directory),
            staged=LocalStagedSegments(directory),
            publisher=LocalSegmentPublisher(directory),
        )
    )


def bucket_committer(directory: BucketDirectory, tries: int = 20) -> Committer:
    """Return the committer of a log directory in a bucket. `tries` is that of Committer."""
    target = WriteTarget(
        directory=directory,
        locks=None,
        log=BucketCommitLog(directory),
        jobs=BucketStagedJobs(directory),
        new_stage=BucketStage,
        join_bytes=layout.MAX_INT64,  # any number of staged objects becomes one segment
        log_ends=BucketLogEnds(directory),
        staged=BucketStagedSegments(directory),
        publisher=BucketSegmentPublisher(directory),
    )
    return Committer(target, tries=tries)
