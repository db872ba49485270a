"""Stores over the tests' S3 server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server


def s3_options(server: S3Server, proxy: FaultProxy | None = None) -> dict[str, str]:
    """Return the options that a user of that server sets."""
    return {
        "fs.s3a.access.key": server.access_key,
        "fs.s3a.secret.key": server.secret_key,
        "fs.s3a.endpoint": proxy.endpoint if proxy is not None else server.endpoint,
    }


def s3_store(
    server: S3Server,
    proxy: FaultProxy | None = None,
    bucket: str = "tier",
    more: Mapping[str, str] = MappingProxyType({}),
) -> ObjectStore:
    """more: options that take precedence. Stores with other options have clients, and counts, of their own."""
    return ObjectStore("s3", bucket, StorageOptions.of({**s3_options(server, proxy), **more}))
