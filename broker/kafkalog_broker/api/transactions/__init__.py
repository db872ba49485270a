"""APIs about transactions and idempotent producers."""
