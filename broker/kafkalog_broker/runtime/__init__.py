"""What the broker's process is made of: clock, threads, turns of the event loop, memory."""
