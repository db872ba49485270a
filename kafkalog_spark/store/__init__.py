"""Where files lie: a local directory or an object store, with one small interface."""
