"""Objects of remote storage in a bucket."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property

from kafkalog_spark.store.object_client import ObjectClient
from kafkalog_spark.store.object_store import ObjectStore


@dataclass(frozen=True)
class BucketStore(ObjectStore):
    """Objects in a bucket, with a client of its own: once `stopping` is set, a request that fails is not repeated."""

    stopping: threading.Event = field(default_factory=threading.Event, compare=False)

    @cached_property
    def client(self) -> ObjectClient:
        return ObjectClient(self.scheme, self.bucket, self.options, wait=self.stopping.wait)
