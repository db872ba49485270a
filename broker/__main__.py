"""The command kafkalog-broker, also as `python -m broker`."""

from __future__ import annotations

import sys

# kio's types bring hypothesis along where that is installed, for strategies of tests that nobody here asks for: a fifth
# of the start, and 10 MB. It stays importable for whoever wants it afterwards.
_unwanted = "hypothesis" not in sys.modules
if _unwanted:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the way to say that it cannot be imported
try:
    from broker.cli import main
    from broker.errors import ErrorCode  # noqa: F401  kio is loaded now
finally:
    if _unwanted:
        del sys.modules["hypothesis"]

if __name__ == "__main__":
    sys.exit(main())
