"""Loading of the kernels in a thread, while tasks read the first batches of a stream."""

from __future__ import annotations

import threading


class Kernels:
    """Loader of the kernels of one process."""

    def __init__(self) -> None:
        self._loader: threading.Thread | None = None
        self._loaded = False

    def are_ready(self) -> bool:
        """Return True if the kernels are loaded. The first call starts a thread that loads them."""
        if self._loader is None:
            self._loader = threading.Thread(target=self.load, name="kafkalog-kernels", daemon=True)
            self._loader.start()
        return self._loaded

    def load(self) -> None:
        """Load the kernels in this thread."""
        from kafkalog_spark.log.read import partition_scan  # noqa: F401 - the import loads the kernels

        self._loaded = True


KERNELS = Kernels()
"""The kernels of this process."""
