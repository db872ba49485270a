"""From record batches to Arrow: kernels and buffers."""
