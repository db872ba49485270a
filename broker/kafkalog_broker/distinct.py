"""Each number of an array once."""

from __future__ import annotations

from array import array

import numpy as np


def distinct(numbers: array[int]) -> array[int]:
    """The numbers in the order in which each comes first. For a thread: numpy sorts without the interpreter, and half a
    million take 12 MB meanwhile, where a dictionary takes 40.
    """
    _, first = np.unique(np.frombuffer(numbers, np.dtype(numbers.typecode)), return_index=True)
    first.sort()
    found = array(numbers.typecode)
    found.frombytes(np.frombuffer(numbers, np.dtype(numbers.typecode))[first].tobytes())
    return found
