"""Choice of the event loop."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create a uvloop if the package is installed, else asyncio's loop."""
    try:
        import uvloop
    except ImportError:  # there is no uvloop for Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
