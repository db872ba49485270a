"""What a broker tells of itself, as Prometheus text over HTTP."""
