"""Loading of the kernels in the background, while tasks read the first batches of a stream."""

from __future__ import annotations

import threading


class Kernels:
    """Whether the kernels of this process are loaded, and the thread that loads them."""

    def __init__(self) -> None:
        self._loader: threading.Thread | None = None
        self._loaded = False

    def ready(self) -> bool:
        """Return True if the kernels are loaded. The first call starts loading them."""
        if self._loader is None:
            self._loader = threading.Thread(target=self.load, name="kafkalog-kernels", daemon=True)
            self._loader.start()
        return self._loaded

    def load(self) -> None:
        from kafkalog_spark.log.read import partition_scan  # noqa: F401 - loads the kernels

        self._loaded = True


KERNELS = Kernels()
"""The kernels of this process."""
