"""Check, before a write begins, that its path is a log directory or may become one. Changes no file."""

from __future__ import annotations

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.format import names
from kafkalog_spark.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.state_files import read_meta_properties
from kafkalog_spark.sink.log_directory import LogDirectory

_FILES_OF_SINK = ("kafkalog.commits", "kafkalog.sink", "kafkalog.staged")  # prefixes


def check_log_directory(directory: LogDirectory) -> None:
    """Raise an error unless the directory is a log directory, empty or missing. Changes no file.

    Raises:
        NotALogDirectory: If it is a file, the directory of one partition, or has no file of Kafka's.
        UnsupportedFormat, CorruptFile: If its meta.properties cannot be read.
    """
    try:
        listing = directory.names_in_root()
    except NotADirectoryError:
        raise NotALogDirectory(
            f"is {directory.entry_noun}, expected a log directory",
            path=directory.root,
            hint="give the path of a directory, as in log.dirs",
        ) from None
    if any(names.parse_segment_file(name) is not None for name in listing):
        raise NotALogDirectory(
            "holds segment files: it is the directory of one partition",
            path=directory.root,
            hint=f"give its parent {directory.root.rpartition('/')[0] or '/'}, and name topic and partition as "
            "columns or options",
        )
    if META_PROPERTIES_FILE in listing:
        read_meta_properties(directory.store, directory.root)
    if listing and not any(_shows_log_directory(directory, name) for name in listing):
        LogDirs.open(directory.root, directory.storage)  # raises if no file in it is Kafka's


def _shows_log_directory(directory: LogDirectory, name: str) -> bool:
    """Return True if only a log directory has an entry of that name."""
    if name in (META_PROPERTIES_FILE, names.LOCK_FILE) or name.startswith(_FILES_OF_SINK):
        return True
    # On a disk a name like broker-0 does not decide: it may be a log directory, and this one its parent.
    return directory.store.is_remote and names.parse_partition_dir(name) is not None
