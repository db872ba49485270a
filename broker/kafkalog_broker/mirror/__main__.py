"""The command kafkalog-mirror, also as `python -m kafkalog_broker.mirror`."""

from __future__ import annotations

import sys

from kafkalog_broker.runtime.process import what_is_missing, without_hypothesis


def main() -> int:
    """The exit code: that of kafkalog_broker.mirror.command.main, 2 without the packages that a mirror needs."""
    try:
        with without_hypothesis():
            from kafkalog_broker.mirror import command
    except ModuleNotFoundError as error:
        missing = what_is_missing(error)
        if missing is None:
            raise
        print(f"kafkalog-mirror: {missing}", file=sys.stderr)
        return 2
    return command.main()


if __name__ == "__main__":
    sys.exit(main())
