"""Which store a path lies in."""

from __future__ import annotations

from kafkalog_spark.log.store.client_settings import OBJECT_SCHEMES
from kafkalog_spark.log.store.interface import Store
from kafkalog_spark.log.store.local_store import LOCAL
from kafkalog_spark.log.store.object_client import all_counts
from kafkalog_spark.log.store.object_store import ObjectStore
from kafkalog_spark.log.store.request_counts import RequestCounts
from kafkalog_spark.log.store.storage_options import StorageOptions
from kafkalog_spark.log.store.urls import HADOOP_SCHEMES, is_local, normalised, place_of

__all__ = ["RequestCounts", "all_counts", "is_local", "normalised", "store_of"]


def store_of(path: str, options: StorageOptions | None = None) -> Store:
    """The store that reads `path`: equal ones for paths of one bucket. No request is made.

    Local paths and `file:` give LOCAL; `s3`, `s3a`, `gs`, `abfs(s)`, `az` obstore; `hdfs`, `viewfs` Arrow; everything
    else with a scheme fsspec. Raises OptionError for a path that names no bucket, or with credentials in it.
    """
    place = place_of(path)
    if not place.scheme:
        return LOCAL
    options = options or StorageOptions()
    if place.scheme in OBJECT_SCHEMES:
        return ObjectStore(place.scheme, place.bucket, options)
    if place.scheme in HADOOP_SCHEMES:
        from kafkalog_spark.log.store.arrow_store import HadoopStore

        return HadoopStore(place.scheme, place.bucket)
    from kafkalog_spark.log.store.fsspec_store import FsspecStore

    return FsspecStore(place.scheme, place.bucket, options)
