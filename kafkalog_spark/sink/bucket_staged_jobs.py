"""Jobs in a bucket: the staged objects alone.

There is no heartbeat object: stale objects are recognised by their age.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog_spark.sink.bucket_commit_log import RETENTION_SECONDS
from kafkalog_spark.sink.bucket_directory import BucketDirectory
from kafkalog_spark.sink.bucket_stage import STAGED
from kafkalog_spark.sink.staged_jobs import StagedJobs


@dataclass(frozen=True)
class BucketStagedJobs(StagedJobs):
    """Jobs of a log directory in a bucket.

    Jobs of a stream end by their age alone: another process may be writing the same micro-batch, and still needs its
    staged objects.
    """

    directory: BucketDirectory

    def staged(self, job: str) -> list[str]:
        return [f"{STAGED}/{job}/{staged.name}" for staged in self.directory.objects_under(f"{STAGED}/{job}")]

    def sweep(self, job: str) -> None:
        """Remove the job's objects, and those of jobs whose newest object is older than RETENTION_SECONDS."""
        staged = self.directory.objects_under(STAGED)
        now = max((item.modified_s for item in staged), default=0.0)
        newest: dict[str, float] = {}
        for item in staged:
            owner = item.name.partition("/")[0]
            newest[owner] = max(newest.get(owner, 0.0), item.modified_s)
        ended = {owner for owner, at in newest.items() if owner == job or now - at > RETENTION_SECONDS}
        self.directory.delete([f"{STAGED}/{item.name}" for item in staged if item.name.partition("/")[0] in ended])
