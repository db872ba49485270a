"""APIs that write or read records, acknowledge them, or look up their offsets."""
