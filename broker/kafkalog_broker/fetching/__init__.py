"""What Fetch needs beside the logs: sessions, and waiting for data."""
