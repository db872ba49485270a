"""Selects the store for a path."""

from __future__ import annotations

from kafkalog_spark.store.fsspec_store import FsspecStore
from kafkalog_spark.store.hadoop_store import HadoopStore
from kafkalog_spark.store.interface import Store
from kafkalog_spark.store.local_store import LOCAL
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import HADOOP_SCHEMES, OBJECT_SCHEMES, parse_path
from kafkalog_spark.store.storage_options import StorageOptions


def store_of(path: str, options: StorageOptions | None = None) -> Store:
    """Return the store that reads `path`, without sending a request. Stores of paths in one bucket are equal.

    The store of a local path or `file:` is LOCAL; that of OBJECT_SCHEMES an ObjectStore, that of HADOOP_SCHEMES a
    HadoopStore, and that of any other scheme an FsspecStore.

    Args:
        path: Local path or URL.
        options: Storage options; None for the defaults.

    Raises:
        OptionError: If the path names no bucket, or contains credentials.
    """
    location = parse_path(path)
    if not location.scheme:
        return LOCAL
    options = options or StorageOptions()
    if location.scheme in OBJECT_SCHEMES:
        return ObjectStore(location.scheme, location.bucket, options)
    kind = HadoopStore if location.scheme in HADOOP_SCHEMES else FsspecStore
    return kind(location.scheme, location.bucket, options)
