"""Which store reads a path."""

from __future__ import annotations

from kafkalog_spark.store.interface import Store, parse_path
from kafkalog_spark.store.local_store import LOCAL
from kafkalog_spark.store.object_client import OBJECT_SCHEMES
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions


def store_of(path: str, options: StorageOptions | None = None) -> Store:
    """The store that reads `path`: equal ones for paths of one bucket. No request is made.

    Local paths and `file:` give LOCAL; `s3`, `s3a`, `gs`, `abfs(s)`, `az` obstore; everything else with a scheme
    fsspec. Raises OptionError for a path that names no bucket, or with credentials in it.
    """
    place = parse_path(path)
    if not place.scheme:
        return LOCAL
    options = options or StorageOptions()
    if place.scheme in OBJECT_SCHEMES:
        return ObjectStore(place.scheme, place.bucket, options)
    from kafkalog_spark.store.fsspec_store import FsspecStore

    return FsspecStore(place.scheme, place.bucket, options)
