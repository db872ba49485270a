"""Ends of logs on a disk. A log that has changed since the last commit is recovered first (log_recovery)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafkalog_spark import errors
from kafkalog_spark.format import checkpoint, names
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.state_files import Checkpoints
from kafkalog_spark.log.write.ordered_windows import OffsetOverflow
from kafkalog_spark.sink.commit_record import PlannedSegment
from kafkalog_spark.sink.interrupted_cleaning import check_cleaned
from kafkalog_spark.sink.local_commit_log import PREFIX
from kafkalog_spark.sink.local_directory import LocalDirectory
from kafkalog_spark.sink.log_ends import LogEnds
from kafkalog_spark.sink.log_recovery import is_closed, log_files, recover_log
from kafkalog_spark.sink.partition_end import PartitionEnd, partition_end

_LOAD = "let a broker load the directory once"


@dataclass(frozen=True)
class LocalLogEnds(LogEnds):
    """Ends of the logs of a log directory on a disk."""

    directory: LocalDirectory

    def end_of(
        self, location: PartitionLocation, last: PlannedSegment | None, checkpoints: Checkpoints
    ) -> PartitionEnd:
        try:
            log = location.open()
            check_cleaned(log, _LOAD)
            end = log.log_end
            if self._is_untouched(log, last):
                directory = Path(location.directory)
                epochs = checkpoint.read_leader_epochs(directory / checkpoint.LEADER_EPOCH_CHECKPOINT)
            else:
                epochs = recover_log(log, clean=(self.directory.log_dir / names.CLEAN_SHUTDOWN_FILE).exists())
        except OffsetOverflow as overflow:
            raise errors.CorruptLog(
                str(overflow),
                topic_partition=f"{location.topic}-{location.partition}",
                hint=f"{_LOAD}: it splits the segment",
            ) from None
        except errors.KafkalogError as error:
            raise error.at(topic_partition=f"{location.topic}-{location.partition}") from None
        return partition_end(end.offset, epochs)

    def _is_untouched(self, log: PartitionLog, last: PlannedSegment | None) -> bool:
        """Return True if the last commit wrote the end of the log and no file has changed since. All is on disk then.

        A broker that started in between may have rewritten indexes and snapshots without an fsync, even if it appended
        nothing. So the change times (ctime) of the files are compared with that of the commit's `done` file. Equal
        times count as a change, because the clock of a file system is coarse.
        """
        if last is None or not log.segments or log.segments[-1].base_offset != last.base_offset:
            return False
        if (log.log_end.offset, log.log_end.position) != (last.next_offset, last.size) or not is_closed(log):
            return False
        try:
            done_ns = (self.directory.log_dir / (PREFIX + "done")).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        files = [Path(log.directory), *(Path(log.directory, name) for name in log_files(log))]
        return all(path.stat().st_ctime_ns < done_ns for path in files if path.exists())
