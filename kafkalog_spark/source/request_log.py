"""What a plan, a trigger or a task cost in requests to object stores, in one line of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafkalog_spark.log.store.interface import Store

_log = logging.getLogger(__name__)


@contextmanager
def requests_logged(what: str, stores: Iterable[Store]) -> Iterator[None]:
    """Log, at level INFO, the requests and bytes of this process while it lasts; nothing where all stores are near."""
    if not any(store.remote for store in stores):
        yield
        return
    from kafkalog_spark.log.store.stores import all_counts  # the client of object stores only where one is read

    before = all_counts()
    try:
        yield
    finally:
        _log.info("%s: %s", what, all_counts() - before)
