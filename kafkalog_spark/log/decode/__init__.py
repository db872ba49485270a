"""From record batches to Arrow: decompression, kernels, buffers."""
