"""Bytes to values and back: file names, layouts, indexes, snapshots, checkpoints, records. No file is scanned here."""
