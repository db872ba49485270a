"""Why a peer is not who it says it is."""

from __future__ import annotations


class NotAuthenticated(Exception):
    """The text is for the log, in one line, and holds nothing secret."""
