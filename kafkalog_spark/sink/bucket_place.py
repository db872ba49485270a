"""A log directory in a bucket, as a write meets it."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.sink import staging
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_commit import BucketCommitter
from kafkalog_spark.sink.bucket_names import COMMITS, job_name
from kafkalog_spark.sink.bucket_stage import BucketStage
from kafkalog_spark.sink.bucket_target import check_bucket


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
            if not bucket.names(COMMITS)[0]:
                bucket.expect_conditional_put(COMMITS)
        except OSError as error:
            raise bucket.unwritable(error) from error
        BucketCommitter(bucket).recover()
        return job_name(staging.new_job_id(), stream)

    def exists(self) -> bool:
        """A prefix needs not be made."""
        return True

    def stage(self, job: str) -> BucketStage:
        """See WritePlace."""
        return BucketStage(self._bucket, job)

    def committer(self) -> BucketCommitter:
        """See WritePlace."""
        return BucketCommitter(self._bucket)
