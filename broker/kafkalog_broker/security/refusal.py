"""Why a peer is not who it says it is."""

from __future__ import annotations


class NotAuthenticated(Exception):
    """The text is for the log, in one line, and holds nothing secret."""


class Refused(NotAuthenticated):
    """An exchange of SASL that failed. `shown`: what the client reads; None: no more than that it failed, so that a
    stranger does not learn whether there is such a user."""

    def __init__(self, shown: str | None, why: str) -> None:
        super().__init__(why)
        self.shown = shown
