"""The command kafkalog-mirror, also as `python -m kafkalog_broker.mirror`."""

from __future__ import annotations

import sys

from kafkalog_broker.mirror.command_line import parser
from kafkalog_broker.runtime.process import importing
from kafkalog_spark.errors import OptionError


def main() -> int:
    """The exit code: that of kafkalog_broker.mirror.command.main, 2 without the packages that a mirror needs."""
    arguments = parser().parse_args()
    try:
        with importing():
            from kafkalog_broker.mirror import command
    except OptionError as error:
        print(f"kafkalog-mirror: {error}", file=sys.stderr)
        return 2
    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
