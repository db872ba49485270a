"""The command kafkalog-broker, also as `python -m kafkalog_broker`."""

from __future__ import annotations

import sys

from kafkalog_broker.runtime.optional_packages import importing
from kafkalog_spark.errors import OptionError


def main() -> int:
    """Run the command, and return its exit code: 2 if a package that the broker needs is missing."""
    try:
        with importing():
            from kafkalog_broker import cli
    except OptionError as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
