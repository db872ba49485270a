"""Where files lie: a local directory or an object store, behind one small interface."""
