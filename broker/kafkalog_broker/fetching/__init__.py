"""What Fetch needs besides the logs: sessions, and waiting for data."""
