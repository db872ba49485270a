"""Control of a test's running broker: faults, clock, users."""
