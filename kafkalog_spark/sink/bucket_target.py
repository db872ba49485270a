"""The log directory in a bucket that is written to: whether it can be, and which topics it holds."""

from __future__ import annotations

import posixpath

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.format.meta_properties import META_PROPERTIES_FILE
from kafkalog_spark.log.format.names import DirKind, parse_partition_dir
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.small_files import read_meta_properties
from kafkalog_spark.sink.bucket import Bucket
from kafkalog_spark.sink.bucket_names import COMMITS, STAGED
from kafkalog_spark.sink.target import check_no_segments


def check_bucket(bucket: Bucket) -> None:
    """Raise unless the directory is a log directory, or empty, or missing. Changes nothing. One LIST.

    NotALogDirectory: an object, one partition's directory, something else's directory. UnsupportedFormat, CorruptFile:
    the meta.properties of a layout that is not known. OSError otherwise.
    """
    try:
        files, directories = bucket.names()
    except NotADirectoryError:
        raise NotALogDirectory(
            "is an object, a log directory is written to", path=bucket.root, hint="give a path of its own"
        ) from None
    check_no_segments(files, bucket.root, posixpath.dirname(bucket.root))
    if META_PROPERTIES_FILE in files:
        read_meta_properties(bucket.store, bucket.root)
    known = {META_PROPERTIES_FILE, COMMITS, STAGED}
    found = files + directories
    if found and not any(name in known or parse_partition_dir(name) for name in found):
        LogDirs.open(bucket.root, bucket.store.options)  # raises for a directory without anything of Kafka's


def topics_in_bucket(bucket: Bucket) -> dict[str, list[int]]:
    """{topic: its partitions, sorted}, of live partition directories. One LIST."""
    topics: dict[str, list[int]] = {}
    for name in bucket.names()[1]:
        parsed = parse_partition_dir(name)
        if parsed is not None and parsed.kind is DirKind.LIVE:
            topics.setdefault(parsed.topic, []).append(parsed.partition)
    return {topic: sorted(partitions) for topic, partitions in topics.items()}
