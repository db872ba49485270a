"""Time slices that are always over, to count how often other requests may run."""

from __future__ import annotations

from types import ModuleType

import pytest


def count_time_slices(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[int]:
    """Return a list that gets an element whenever a request that `module` handles lets others run."""
    ended: list[int] = []

    class Short(module.TimeSlice):  # type: ignore[misc, name-defined]
        is_over = property(lambda self: True)

        async def wait_turn(self):
            ended.append(1)

    monkeypatch.setattr(module, "TimeSlice", Short)
    return ended
