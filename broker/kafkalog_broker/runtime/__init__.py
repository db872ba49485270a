"""Runtime of the process: clock, threads, fair scheduling of the event loop, state machines, logging, memory."""
