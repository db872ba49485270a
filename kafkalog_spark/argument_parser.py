"""Argument parser for commands whose --help and --version may be piped into a reader that stops early."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from kafkalog_spark.exit_codes import BROKEN_PIPE, FAILED


class Parser(argparse.ArgumentParser):
    """ArgumentParser that reports a failed write of --help or --version. argparse itself would exit with 0."""

    def _print_message(self, message: str, file: Any = None) -> None:
        out = sys.stderr if file is None else file
        try:
            out.write(message)
            out.flush()
        except BrokenPipeError:
            discard_stdout()
            sys.exit(BROKEN_PIPE)
        except OSError as error:
            discard_stdout()
            print(f"{self.prog}: stdout cannot be written: {error.strerror}", file=sys.stderr)
            sys.exit(FAILED)


def discard_stdout() -> None:
    """Discard the bytes that stdout still buffers, so that the interpreter does not report them when it exits."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # stdout is not a file, so nothing is buffered
        pass
