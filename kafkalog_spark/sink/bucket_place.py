"""A log directory in a bucket, as a write meets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_commit import BucketCommitter
from kafkalog_spark.sink.bucket_names import COMMITS
from kafkalog_spark.sink.bucket_stage import BucketStage
from kafkalog_spark.sink.bucket_target import check_bucket
from kafkalog_spark.sink.manifest import TaskManifest


@dataclass(frozen=True)
class BucketPlace:
    """See WritePlace. path: normalised."""

    path: str
    storage: StorageOptions

    @property
    def _bucket(self) -> Bucket:
        return Bucket.at(self.path, self.storage)

    def open_job(self, stream: str | None) -> str:
        """See WritePlace. No object says that the job lives: what it leaves is known by its age. Raises
        NotALogDirectory also for a store without conditional puts, before any row is encoded."""
        bucket = self._bucket
        try:
            check_bucket(bucket)
            if BucketCommitter(bucket).recover().number < 0:
                bucket.expect_conditional_put(COMMITS)
        except OSError as error:
            raise bucket.unwritable(error) from error
        return staging.new_job_id()

    def stage(self, job: str) -> BucketStage:
        """See WritePlace."""
        return BucketStage(self._bucket, job)

    def commit(
        self, job: str, tasks: Sequence[TaskManifest], segment_bytes: int, query: str | None = None, batch: int = -1
    ) -> bool:
        """See WritePlace."""
        return BucketCommitter(self._bucket).commit(job, tasks, segment_bytes, query, batch)

    def abort(self, jobs: Sequence[str], *, tried: bool) -> None:
        """See WritePlace."""
        BucketCommitter(self._bucket).abort(jobs, tried=tried)

    def end(self, job: str, stream: str | None) -> None:
        """See WritePlace. What killed tasks staged is removed when it is a week old: another process may be at work on
        the same micro-batch, and what it staged is needed until then."""
