"""Limit of open files of this process."""

from __future__ import annotations

import resource


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files to the hard limit and return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS allows less than its hard limit
            return soft
    return hard
