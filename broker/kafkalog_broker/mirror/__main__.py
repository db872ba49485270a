"""Command line of kafkalog-mirror, also `python -m kafkalog_broker.mirror`.

It is parsed before the packages of the extra [mirror] are imported, so that --help works without them.
"""

from __future__ import annotations

import argparse
import sys

from kafkalog_broker.mirror.byte_count import parse_bytes
from kafkalog_broker.runtime.optional_packages import importing
from kafkalog_spark.argument_parser import Parser
from kafkalog_spark.errors import OptionError
from kafkalog_spark.exit_codes import WRONG_USAGE

_LEVELS = ("debug", "info", "warning", "error")


def parser() -> argparse.ArgumentParser:
    arguments = Parser(
        prog="kafkalog-mirror",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Copy topics of a Kafka cluster (0.11 to 4.x) into a log directory, batch by batch as its brokers "
        "have them,\nand keep following them. The directory is read with spark.read.format('kafkalog').",
        epilog="""examples:
  kafkalog-mirror --bootstrap kafka1:9092 --log-dir ./mirror --topics 'orders|clicks.*'
  kafkalog-mirror --bootstrap kafka1:9092 --log-dir ./mirror --topics orders --once
  kafkalog-mirror --bootstrap kafka1:9093 --log-dir ./mirror --topics orders \\
      -X security.protocol=sasl_ssl -X sasl.mechanism=SCRAM-SHA-512 \\
      -X sasl.username=mirror -X sasl.password=env:MIRROR_PASSWORD -X ssl.ca.location=ca.pem

-X takes librdkafka's names of properties. A value env:NAME is read from the environment, so that the list of processes
shows no password. See docs/mirror.md.""",
    )
    arguments.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...", help="nodes of the cluster")
    arguments.add_argument("--log-dir", required=True, metavar="DIR", help="directory of the copy, one per cluster")
    arguments.add_argument("--topics", required=True, metavar="REGEX", help="topics whose whole name matches")
    arguments.add_argument("--internal", action="store_true", help="also internal topics, such as __consumer_offsets")
    arguments.add_argument("--once", action="store_true", help="stop at the high watermarks of the start")
    arguments.add_argument(
        "--max-bytes-per-second", type=parse_bytes, metavar="N", help="limit of fetched bytes, such as 50000000 or 50M"
    )
    arguments.add_argument("-X", action="append", default=[], metavar="NAME=VALUE", help="a property of the client")
    arguments.add_argument("--log-level", choices=_LEVELS, default="info", help="what to log on stderr (default: info)")
    return arguments


def main() -> int:
    """Run the command, and return its exit code; WRONG_USAGE if packages that a mirror needs are missing."""
    arguments = parser().parse_args()
    try:
        with importing():
            from kafkalog_broker.mirror import command
    except OptionError as error:
        print(f"kafkalog-mirror: {error}", file=sys.stderr)
        return WRONG_USAGE
    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
