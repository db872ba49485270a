"""What the kernel of JSON, its parts and json_columns.py share: what they return, columns and places of their tables.

All of them plain numbers: members of an IntEnum are slow to compile.
"""

from __future__ import annotations

import numpy as np

from kafkalog_spark.typed.json_program import WORD_LENGTH_BITS, F, Kind, N

DONE, LEFT, FULL = 0, 1, 2
"""Of a row: decoded; not decided here. Of a call: a domain, or the table of numbers, has no room left."""
BAD, NO_ROOM = np.int64(-1), np.int64(-2)
"""Instead of a place: a text that is left; `numbers` is full."""
IN_ZONE = 2
"""Of a slot that is valid: a timestamp in the time of the zone that the options say. 1: as it is."""
DEPTH = 64
MAX_STRING = (1 << WORD_LENGTH_BITS) - 1

K_INTEGER, K_BOOLEAN, K_DOUBLE, K_FLOAT = int(Kind.INTEGER), int(Kind.BOOLEAN), int(Kind.DOUBLE), int(Kind.FLOAT)
K_STRING, K_TIMESTAMP, K_LOCAL, K_DATE = int(Kind.STRING), int(Kind.TIMESTAMP), int(Kind.LOCAL), int(Kind.DATE)
K_DECIMAL, K_STRUCT, K_ARRAY, K_MAP = int(Kind.DECIMAL), int(Kind.STRUCT), int(Kind.ARRAY), int(Kind.MAP)
N_KIND, N_DOMAIN, N_BASE, N_LOW, N_HIGH = int(N.KIND), int(N.DOMAIN), int(N.BASE), int(N.LOW), int(N.HIGH)
N_NAMES, N_BITS, N_CHILD, N_KEY = int(N.NAMES), int(N.BITS), int(N.CHILD), int(N.KEY)
F_NODE, F_AT, F_LENGTH, F_WORD = int(F.NODE), int(F.AT), int(F.LENGTH), int(F.WORD)

ROOT = 0
"""The node of a value as a whole."""

# what a frame of the stack is
IN_STRUCT, IN_MAP, IN_OBJECT, IN_ARRAY, IN_LIST = 0, 1, 2, 3, 4  # the last three: skipped object, array, skipped array
# columns of `frames`: what it is, its node, its slot, how many elements there were when it began, how many names so far
WHAT, NODE, SLOT, BEFORE, NAMES_SEEN = 0, 1, 2, 3, 4
FRAME_WIDTH = 5
# places in `state`: bytes of the arena and rows of `numbers` that are used, which domain is full
ARENA_USED, NUMBERS_USED, FULL_DOMAIN = 0, 1, 2
# columns of `numbers`: the node, its slot, where the digits lie as place << 12 | length
OF_NODE, OF_SLOT, DIGITS = 0, 1, 2
# columns of `expected`: the name that was at this place of the last object, and the quote after it, as two words with
# masks; its length, 0 for none; its node, and that node's kind and base
WORD_1, MASK_1, WORD_2, MASK_2, NAME_LENGTH, NAME_NODE, NAME_KIND, NAME_BASE = 0, 1, 2, 3, 4, 5, 6, 7
EXPECTED_WIDTH = 8
EXPECTED_NAMES = 32
"""Names of an object that are expected where they were in the last one."""
LONGEST_EXPECTED = 15
