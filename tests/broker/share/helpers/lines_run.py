"""How much Python some call runs, counted and not timed: the same on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(call: Callable[[], object], counted: str = "/kafkalog_broker/share/") -> int:
    """Lines of the files in `counted` that run during the call, each as often as it does."""
    count = 0

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def entered(frame: FrameType, event: str, arg: Any) -> Any:
        return local if counted in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
