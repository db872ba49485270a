"""Runtime of the broker's process: clock, threads, fair scheduling of the event loop, memory."""
