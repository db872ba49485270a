"""The command kafkalog-broker, also as `python -m kafkalog_broker`."""

from __future__ import annotations

import sys

from kafkalog_broker.extra import what_is_missing


def main() -> int:
    """The exit code: that of kafkalog_broker.cli.main, 2 without the packages that the broker needs."""
    # kio's types bring hypothesis along where that is installed, for strategies of tests that nobody here asks for: a
    # fifth of the start, and 10 MB. It stays importable for whoever wants it afterwards.
    unwanted = "hypothesis" not in sys.modules
    if unwanted:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the way to say that it cannot be imported
    try:
        from kafkalog_broker import cli
        from kafkalog_broker.errors import ErrorCode  # noqa: F401  kio is loaded now
    except ModuleNotFoundError as error:
        missing = what_is_missing(error)
        if missing is None:
            raise
        print(f"kafkalog-broker: {missing}", file=sys.stderr)
        return 2
    finally:
        if unwanted:
            del sys.modules["hypothesis"]
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
