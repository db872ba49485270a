"""Consumer groups: who is a member of what, and the offsets that groups have committed.

No asyncio, socket or file in here: time comes from a clock and a scheduler, records go out through a callable, and
answers that must wait leave through callbacks.
"""
