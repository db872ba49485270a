"""The command kafkalog-broker: its command line and its configuration.

    kafkalog-broker --log-dir ./data                               one node on 127.0.0.1:9092, topics created on demand
    kafkalog-broker server.properties --override num.partitions=4  Kafka's own configuration file
    kafkalog-broker --log-dir ./mirror --mirror-of kafka1:9092     serves another cluster's topics, read-only

When the broker is ready, it prints one line on stdout. Logs go to stderr. The first SIGTERM or SIGINT stops the broker
cleanly, even while it starts; the second one stops it immediately. Exit codes: 0 after a stop by signal; 1 if the
broker could not start, or if it failed, so that a supervisor may start it again; 2 if the command line or the
configuration is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

from kafkalog_broker.broker_process import ProcessOptions, run_broker
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.listeners import format_address
from kafkalog_broker.config.property_names import nearest_property
from kafkalog_broker.config.server_properties import DEFAULTS_WITHOUT_FILE, parse_overrides, read_server_properties
from kafkalog_broker.runtime.logging_setup import set_up_logging
from kafkalog_broker.runtime.optional_packages import importing
from kafkalog_broker.security.new_scram_users import parse_add_scram
from kafkalog_spark.argument_parser import Parser
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import FAILED, WRONG_USAGE

if TYPE_CHECKING:
    from kafkalog_broker.mirror.served_mirror import ServedMirror

ALL_TOPICS = ".*"
_HOST, _PORT = "127.0.0.1", 9092  # as in DEFAULTS_WITHOUT_FILE
_LEVELS = ("debug", "info", "warning", "error")
_log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    command_line = Parser(
        prog="kafkalog-broker",
        description="A Kafka-compatible broker that writes Kafka's own log directories.",
        epilog="Property names and values are Kafka's. Without a file: 127.0.0.1:9092, topics are created on demand. "
        "The address is --host and --port, or the property listeners (for clients: advertised.listeners). "
        "Each log line ends with the name of its logger, whose level kafka-configs --entity-type broker-loggers sets.",
    )
    command_line.add_argument("properties", nargs="?", metavar="server.properties", help="Kafka's configuration file")
    command_line.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="set a property; may be repeated"
    )
    command_line.add_argument("--log-dir", metavar="DIR", help="short for --override log.dirs=DIR")
    command_line.add_argument(
        "--host", help="short for --override listeners=PLAINTEXT://HOST:PORT (default: 127.0.0.1)"
    )
    command_line.add_argument("--port", type=_port, help="port of --host (default: 9092); 0 for any free port")
    command_line.add_argument(
        "--add-scram", action="append", default=[], metavar="SCRAM-SHA-512=[name=...,password=...]",
        help="create a SCRAM user, unless it exists already; may be repeated",
    )  # fmt: skip
    command_line.add_argument(
        "--metrics", type=_address, metavar="HOST:PORT",
        help="serve Prometheus metrics, /healthz and /readyz at this address, without TLS (needs the extra [metrics])",
    )  # fmt: skip
    mirror = command_line.add_argument_group("a read-only broker over a mirror of another cluster (docs/mirror.md)")
    mirror.add_argument("--mirror-of", metavar="HOST:PORT,...", help="nodes of the cluster whose topics are copied")
    mirror.add_argument(
        "--mirror-topics", metavar="REGEX", default=ALL_TOPICS, help="topics whose whole name matches (default: all)"
    )
    mirror.add_argument("--max-bytes-per-second", metavar="N", help="limit of fetched bytes, such as 50000000 or 50M")
    mirror.add_argument(
        "-X", action="append", default=[], metavar="NAME=VALUE", help="a property of the mirror's Kafka client"
    )
    command_line.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="what to log on stderr (default: info)"
    )
    command_line.add_argument(
        "--stop-at-eof",
        action="store_true",
        help="stop when stdin is closed, so that the broker ends with its parent process",
    )
    command_line.add_argument("--control-fd", type=int, help=argparse.SUPPRESS)  # for testing_support/control.py
    command_line.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    return command_line


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    try:
        return host.strip("[]") or _HOST, _port(port)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected a number from 0 to 65535")
    return int(text)


def _version() -> str:
    try:
        return metadata.version("kafkalog")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "(not installed)"


def configuration(arguments: argparse.Namespace) -> BrokerConfig:
    """Return the configuration from file, overrides and defaults. Raises ConfigError."""
    overrides = parse_overrides(arguments.override)
    if arguments.log_dir is not None:
        overrides["log.dirs"] = arguments.log_dir
    if arguments.host is not None or arguments.port is not None:
        if arguments.properties is not None or "listeners" in overrides:
            raise ConfigError(
                "--host and --port cannot be combined with a configuration file or the property listeners"
            )
        port = _PORT if arguments.port is None else arguments.port
        overrides["listeners"] = f"PLAINTEXT://{format_address(arguments.host or _HOST, port)}"
    if arguments.mirror_of is not None:
        overrides["auto.create.topics.enable"] = "false"  # a mirror has only topics of the source
    if arguments.properties is not None:
        return BrokerConfig.from_properties(read_server_properties(arguments.properties), overrides)
    if not overrides.keys() & {"log.dirs", "log.dir"}:
        raise ConfigError("no log directory: give --log-dir DIR or a configuration file")
    return BrokerConfig.from_properties(DEFAULTS_WITHOUT_FILE, overrides)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker until it is stopped, and return the exit code."""
    arguments = parser().parse_args(argv)
    set_up_logging(arguments.log_level)
    try:
        config = configuration(arguments)
        new_users = parse_add_scram(arguments.add_scram)
        mirror = _make_mirror(arguments, config)
        if arguments.metrics is not None:
            with importing():
                import kafkalog_broker.metrics.serving  # noqa: F401  to report a missing package now
    except (ConfigError, OptionError) as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return WRONG_USAGE
    log_ignored_properties(config)
    options = ProcessOptions(
        new_users, arguments.metrics, mirror, stop_at_eof=arguments.stop_at_eof, control_fd=arguments.control_fd
    )
    try:
        return run_broker(config, options)
    except (KafkalogError, OSError) as error:
        print(f"kafkalog-broker: {error}", file=sys.stderr)
        return FAILED


def log_ignored_properties(config: BrokerConfig) -> None:
    """Log the properties that were set and have no effect."""
    for name in config.unknown():
        nearest = nearest_property(name)
        hint = "" if nearest is None else f"; did you mean {nearest}?"
        _log.warning("the unknown property %.200s is ignored%s", name, hint)
    unused = config.without_effect()
    if unused:
        _log.info("without effect in this broker: %s", ", ".join(unused))


def _make_mirror(arguments: argparse.Namespace, config: BrokerConfig) -> ServedMirror | None:
    """Return the mirror to run; None without --mirror-of. Raises OptionError."""
    if arguments.mirror_of is None:
        options_of_a_mirror = {
            "--mirror-topics": arguments.mirror_topics != ALL_TOPICS,
            "--max-bytes-per-second": arguments.max_bytes_per_second is not None,
            "-X": bool(arguments.X),
        }
        if names := ", ".join(name for name, is_given in options_of_a_mirror.items() if is_given):
            raise OptionError(f"{names} without --mirror-of has no effect", hint="give --mirror-of HOST:PORT, too")
        return None
    with importing():
        from kafkalog_broker.mirror.byte_count import parse_bytes
        from kafkalog_broker.mirror.mirror_options import serving_options
        from kafkalog_broker.mirror.served_mirror import ServedMirror
    max_bytes_per_second = None
    try:
        if arguments.max_bytes_per_second is not None:
            max_bytes_per_second = parse_bytes(arguments.max_bytes_per_second)
    except argparse.ArgumentTypeError as error:
        raise OptionError(f"--max-bytes-per-second {error}") from None
    return ServedMirror(
        serving_options(
            arguments.mirror_of, arguments.mirror_topics, arguments.X, max_bytes_per_second, config.log_dirs
        )
    )
