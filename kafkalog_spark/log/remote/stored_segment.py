"""Complete remote segment, with the locations of its objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kafkalog_spark.errors import CorruptChunk
from kafkalog_spark.format.names import SegmentFiles
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.tiered.manifest import SegmentManifest
from kafkalog_spark.log.tiered.object_keys import INDEX_FILES, RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.store.interface import FileFacts


@dataclass(frozen=True)
class StoredSegment:
    """A remote segment whose copy is complete.

    Attributes:
        segment: Metadata of the segment.
        remote_dir: Directory of the objects.
        objects: Name and listed facts of each object, by kind. The facts are None in a local directory.
        manifest: The manifest in Aiven's layout; None in others.
    """

    segment: RemoteSegment
    remote_dir: RemoteDir
    objects: Mapping[RemoteFile, tuple[str, FileFacts | None]]
    manifest: SegmentManifest | None

    @property
    def log_path(self) -> str:
        """Path of the .log object."""
        return self.path_of(RemoteFile.LOG)

    def path_of(self, file: RemoteFile) -> str:
        """Return the path of an object. Raises CorruptChunk for the `.indexes` object if it does not exist."""
        if file is RemoteFile.INDEXES and file not in self.objects:
            raise CorruptChunk("the manifest has indexes, but there is no .indexes object", path=self.log_path)
        return os.path.join(self.remote_dir.directory, self.objects[file][0])

    @property
    def files(self) -> SegmentFiles:
        """File names for a SegmentFile. Index names are not object names, but end with the suffix of their kind."""
        indexes = (self.segment.name + file.value if self.has(file) else None for file in INDEX_FILES)
        return SegmentFiles(self.segment.start_offset, self.objects[RemoteFile.LOG][0], *indexes)

    def has(self, file: RemoteFile) -> bool:
        """True if the segment has this index. The transaction index is absent without aborted transactions."""
        if self.manifest is not None and self.manifest.indexes is not None:
            return file in self.manifest.indexes
        return file in self.objects

    @property
    def log_size(self) -> int | None:
        """Size of the decoded .log in bytes; None if it is not known before the object is opened."""
        if self.manifest is not None:
            return self.manifest.chunks.original_file_size
        facts = self.objects[RemoteFile.LOG][1]
        return facts.size if facts is not None else None

    @property
    def object_size(self) -> int | None:
        """Expected size of the .log object in bytes, according to manifest or metadata; None if neither has it."""
        if self.manifest is not None:
            return self.manifest.chunks.object_size
        return self.segment.size if self.segment.size >= 0 else None
