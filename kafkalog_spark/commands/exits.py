"""How commands end: their codes, their help's last lines, and pipes that are closed by their reader."""

from __future__ import annotations

import argparse
import errno
import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

OK, FAILED, WRONG_USAGE = 0, 1, 2
"""FAILED: what the command is for did not come out clean; each says what that means."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: what a shell says of a program whose reader went away, `| head`."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What only writing meets, and a command without an error of its own for it writes to stdout alone."""
INTERRUPTED = 130
"""128 + SIGINT: of one that was ended by Ctrl-C."""

Arguments = Sequence[str] | None


class Parser(argparse.ArgumentParser):
    """argparse's own says nothing when --help or --version cannot be written, and ends with 0."""

    def _print_message(self, message: str, file: Any = None) -> None:
        out = sys.stderr if file is None else file
        try:
            out.write(message)
            out.flush()
        except BrokenPipeError:
            close_stdout()
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            close_stdout()
            print(f"{self.prog}: stdout cannot be written: {error.strerror}", file=sys.stderr)
            sys.exit(FAILED)


class Main(Protocol):
    """argv: of the process where it is None. Returns the exit code."""

    def __call__(self, argv: Arguments = None) -> int: ...


def command(name: str) -> Callable[[Main], Main]:
    """A command's main: a reader that goes away, a stdout that is full, or Ctrl-C, ends it without a traceback."""

    def wrap(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: Arguments = None) -> int:
            try:
                code = main(argv)
                sys.stdout.flush()
                return code
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


def close_stdout() -> None:
    """What is still buffered goes nowhere: the interpreter would complain about it when it ends."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stdout that is no file: nothing is buffered in it
        pass


def epilog(examples: Iterable[tuple[str, str]], codes: str) -> str:
    """The end of --help: examples with their meanings, exit codes."""
    lines = [f"  {line}\n      {meaning}" for line, meaning in examples]
    return "examples:\n" + "\n".join(lines) + f"\n\nexit codes: {codes}"
