"""A log directory whose segments move to remote storage while somebody reads, as a broker moves them."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Mapping
from pathlib import Path

from kafkalog_spark.format.names import REMOTE_STORAGE_FILE, segment_name
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.remote.segment_upload import LogSegmentData
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from tests.log.tiered.aiven_writer import local_tiered_files
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import readable

FILES = local_tiered_files(CLEAN.remote)
DATE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def data_of(segment: RemoteSegment, directory: Path) -> LogSegmentData:
    """A golden segment's files as a broker has them."""
    directory.mkdir(exist_ok=True, parents=True)
    paths = {}
    for file, data in FILES[segment.name].items():
        paths[file] = directory / f"{segment.name}{file.value}"
        paths[file].write_bytes(data)
    log, epochs = paths.pop(RemoteFile.LOG), paths.pop(RemoteFile.LEADER_EPOCHS)
    return LogSegmentData(log, paths, epochs.read_bytes())


class MovingLog:
    """A topic of the golden cluster, all of it on disk at first, in a log directory that names remote storage.

    data: the log directory. segments: those that are still to be moved.
    """

    def __init__(self, place: Path, topic: str, properties: Mapping[str, str]) -> None:
        self.data = place / "data"
        self._place = place
        options = RemoteStorageOptions.of(properties, str(place / "tier"))
        self.remote = RemoteStorage(options)
        self.remote.mark()
        shutil.copytree(
            CLEAN.data,
            self.data,
            ignore=lambda at, names: [
                n
                for n in names
                if at == str(CLEAN.data) and ((n[-2:-1] == "-" and n != f"{topic}-0") or n == "remote-log-index-cache")
            ],
        )
        (self.data / REMOTE_STORAGE_FILE).write_bytes(options.recorded_file(DATE))
        self._directory = self.data / f"{topic}-0"
        living = CLEAN.topic_id(topic, 0)
        on_disk = {int(path.name[:20]) for path in self._directory.glob("*.log")}
        self.segments = [one for one in readable(CLEAN) if one.partition == (topic, living, 0)]
        for segment in self.segments:
            if segment.start_offset in on_disk:
                continue
            for file, data in FILES[segment.name].items():
                if file not in (RemoteFile.LEADER_EPOCHS, RemoteFile.PRODUCER_SNAPSHOT):
                    (self._directory / f"{segment_name(segment.start_offset)}{file.value}").write_bytes(data)

    def move(self, count: int = 1) -> None:
        """Copy the next segments, and remove them from disk."""
        for segment in self.segments[:count]:
            self.remote.copy(segment, data_of(segment, self._place / "files"))
            for path in self._directory.glob(f"{segment_name(segment.start_offset)}.*"):
                if path.suffix != ".snapshot":
                    path.unlink()
        del self.segments[:count]
