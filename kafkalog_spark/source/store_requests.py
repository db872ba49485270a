"""Log of the requests that a step of a read sends to object stores."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafkalog_spark.store.interface import Store

_log = logging.getLogger(__name__)


@contextmanager
def requests_logged(what: str, stores: Iterable[Store]) -> Iterator[None]:
    """Log the requests and bytes of this process during a step, at level INFO. Logs nothing if no store is remote.

    Args:
        what: Name of the step.
        stores: Stores that the step uses.
    """
    if not any(store.is_remote for store in stores):
        yield
        return
    from kafkalog_spark.store.object_client import all_counts  # the client of object stores is loaded only if needed

    before = all_counts()
    try:
        yield
    finally:
        _log.info("%s: %s", what, all_counts() - before)
