"""How much a group may subscribe to."""

from __future__ import annotations

MOST_NAMES = 4_000
"""Topics that a member, or all members of a group together, may name: whatever changes a subscription counts and hashes
all of them in one step."""
