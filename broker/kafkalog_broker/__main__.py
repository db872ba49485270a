"""The command kafkalog-broker, also as `python -m kafkalog_broker`."""

from __future__ import annotations

import sys

from kafkalog_broker.runtime.process import importing
from kafkalog_spark.errors import OptionError


def main() -> int:
    """The exit code: that of kafkalog_broker.cli.main, 2 without the packages that the broker needs."""
    try:
        with importing():
            from kafkalog_broker import cli
    except OptionError as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
