"""How commands end: their codes, their help's last lines, and pipes that are closed by their reader."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalog_spark.argument_parser import Parser, close_stdout
from kafkalog_spark.errors import KafkalogError, OptionError
from kafkalog_spark.exit_codes import BROKEN_PIPE, FAILED, INTERRUPTED, WRONG_USAGE
from kafkalog_spark.log.tiered.tier_options import TierOptions, is_tier_option
from kafkalog_spark.store.storage_options import StorageOptions, is_storage_option

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk. Commands that have no error of their own for them write to stdout alone."""


Main = Callable[..., int]
"""argv, which is that of the process where it is None, to the exit code."""


def command(name: str) -> Callable[[Main], Main]:
    """A command's main. A KafkalogError is wrong usage, unless it is caught before; a reader that goes away, a stdout
    that is full, or Ctrl-C, ends it without a traceback."""

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
                close_stdout()
                return BROKEN_PIPE
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                close_stdout()
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
    """A command line of `paths`, which are explained so, with --option: how object stores and tiered storage are
    reached. --help ends with notes, examples with their meanings, and exit codes."""
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
        help="about an object store, such as fs.s3a.endpoint=http://minio:9000 (docs/object_storage.md), or about "
        "tiered storage: layout, tiered.root, tiered.key.prefix, tiered.encryption.key.ID=PATH; secrets are better "
        "said by the environment, the profile or a file",
    )
    return parser


def write_whole(output: str, text: str) -> None:
    """Write a text in UTF-8: aside, and renamed when it is whole. A link keeps leading to it, and it keeps its mode; a
    device or a pipe is written to. Raises OSError."""
    path = os.path.realpath(output)
    try:
        before = os.stat(path).st_mode
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    aside = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less the umask, as `open` has it
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if before is not None:
                os.chmod(aside, stat.S_IMODE(before))
            file.write(text)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def named_options(given: Sequence[str]) -> dict[str, str]:
    """Values of --option by name. Raises OptionError."""
    options: dict[str, str] = {}
    for text in given:
        name, equals, options[name] = text.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, got '{text}'")
    return options


def storage_of(arguments: argparse.Namespace) -> tuple[StorageOptions, TierOptions]:
    return storage_and_tier(named_options(arguments.option))


def storage_and_tier(options: Mapping[str, str]) -> tuple[StorageOptions, TierOptions]:
    """Storage and tier options. Raises OptionError for any other."""
    for name in options:
        if not (is_storage_option(name) or is_tier_option(name.lower())):
            raise OptionError(
                "--option takes NAME=VALUE, where NAME is layout or begins with fs.s3a., storage., tiered., "
                f"got '{name}'"
            )
    of_storage = {name: value for name, value in options.items() if is_storage_option(name)}
    return StorageOptions.of(of_storage), TierOptions.of(options)
