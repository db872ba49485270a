"""From log directories to Arrow: listing, planning by indexes, scanning segments, decoding runs of batches."""
