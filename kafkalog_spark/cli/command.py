"""Common parts of all commands: the argument parser, and the exit codes for errors, closed pipes and Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import functools
import sys
from collections.abc import Callable, Iterable, Sequence

from kafkalog_spark.argument_parser import Parser, discard_stdout
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.exit_codes import BROKEN_PIPE, FAILED, INTERRUPTED, WRONG_USAGE

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk. A command that does not handle them itself writes to stdout only."""

Main = Callable[..., int]
"""Main function of a command: from argv (None for that of the process) to the exit code."""


def command(name: str) -> Callable[[Main], Main]:
    """Decorate the main function of a command so that it ends without a traceback.

    A KafkalogError that the function does not handle means wrong usage. A closed pipe, a full disk behind stdout and
    Ctrl-C have exit codes of their own.
    """

    def wrap(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: Sequence[str] | None = None) -> int:
            try:
                code = main(argv)
                sys.stdout.flush()
                return code
            except KafkalogError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return WRONG_USAGE
            except BrokenPipeError:
                discard_stdout()
                return BROKEN_PIPE
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                discard_stdout()
                print(f"{name}: stdout cannot be written: {error.strerror}", file=sys.stderr)
                return FAILED
            except KeyboardInterrupt:
                print(f"{name}: interrupted", file=sys.stderr)
                return INTERRUPTED

        return run

    return wrap


def command_parser(
    name: str,
    description: str,
    paths: str,
    examples: Iterable[tuple[str, str]],
    codes: str,
    notes: str = "",
    metavar: str = "DIR",
) -> Parser:
    """Return the parser of a command on log directories, with the arguments `paths` and --option.

    Args:
        name: Name of the command.
        description: First paragraph of --help.
        paths: Help of the argument `paths`.
        examples: Command lines and their meanings, printed by --help.
        codes: Exit codes, printed by --help.
        notes: Text before the examples.
        metavar: Name of `paths` in the help.
    """
    lines = "\n".join(f"  {line}\n      {meaning}" for line, meaning in examples)
    parser = Parser(
        prog=name,
        description=description,
        epilog=f"{notes}examples:\n{lines}\n\nexit codes: {codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar=metavar, help=paths)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of an object store, such as fs.s3a.endpoint=http://minio:9000 (docs/object_storage.md), or of "
        "tiered storage: layout, tiered.root, tiered.key.prefix, tiered.encryption.key.ID=PATH; better give secrets by "
        "the environment, a profile or a file",
    )
    return parser
