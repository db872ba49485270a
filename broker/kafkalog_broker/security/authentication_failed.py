"""Error of a peer that cannot prove its identity."""

from __future__ import annotations


class AuthenticationFailed(Exception):
    """A client certificate or SASL exchange was refused. The text is one line for the log and holds no secret."""
