"""JSON values to columns, compiled: values that are as JSON has them and as the schema has them, and no others.

Whatever else there is (another type than the schema's, a long number, an escape that is not in JSON, invalid UTF-8,
something missing) makes the value LEFT: it is undone, and plain Python decides (json_values.py). So nothing here has to
know what from_json does about errors, and what is written here is what it gives for sure.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kafkalog_spark.kernels.primitives import copy_bytes, kernel, load_u8
from kafkalog_spark.typed.json.program import WORD_ARENA, WORD_LENGTH_BITS
from kafkalog_spark.typed.json.scalar_kernel import (
    expect,
    field_of,
    is_expected,
    row_of,
    take_number,
    take_string,
    take_word,
)
from kafkalog_spark.typed.json.text_kernel import (
    ARENA_USED,
    BAD,
    BEFORE,
    DEPTH,
    DONE,
    EXPECTED_NAMES,
    FULL,
    FULL_DOMAIN,
    IN_ARRAY,
    IN_LIST,
    IN_MAP,
    IN_OBJECT,
    IN_STRUCT,
    K_ARRAY,
    K_MAP,
    K_STRUCT,
    LEFT,
    MAX_STRING,
    N_BASE,
    N_BITS,
    N_CHILD,
    N_DOMAIN,
    N_KEY,
    N_KIND,
    N_NAMES,
    NAME_BASE,
    NAME_KIND,
    NAME_LENGTH,
    NAME_NODE,
    NAMES_SEEN,
    NO_ROOM,
    NODE,
    NUMBERS_USED,
    ROOT,
    SLOT,
    WHAT,
    is_ascii,
    is_utf8,
    space,
    string_end,
)

MAX_NAME = 40_000
# what comes next
NAME_OR_END, NAME, VALUE_OR_END, VALUE, AFTER, CLOSED = 0, 1, 2, 3, 4, 5


@kernel
def decode_json(  # type: ignore[no-untyped-def]
    data,
    offsets,
    present,
    first,
    nodes,
    fields,
    names,
    counts,
    capacity,
    words,
    valid,
    arena,
    numbers,
    state,
    flags,
    frames,
    expected,
):
    """Decode the values data[offsets[i]:offsets[i + 1]] for which present[i] is not 0, from row `first` on.

    nodes, fields, names: of a JsonProgram. counts, capacity: int64 by domain. words, valid: int64 and uint8 by slot,
    zeros. arena: uint8, as long as data. numbers: int64[m, 3], (node, slot, place << 12 | length) of each number that
    is left to a parser of decimals. state: int64[3]: bytes of the arena and rows of `numbers` that are used, which
    domain is full (BAD: `numbers`). flags: uint8 by row, DONE or LEFT. frames: int64[DEPTH, FRAME_WIDTH] and a row for
    each domain, for the counts before a row. expected: int64[nodes * EXPECTED_NAMES * EXPECTED_WIDTH], zeros at first.

    Returns the row that it ended before: all of them, or the one that was FULL.
    """
    rows = len(offsets) - 1
    domains = len(counts)
    for row in range(first, rows):
        if present[row] == 0:
            continue
        arena_used, numbers_used = state[ARENA_USED], state[NUMBERS_USED]
        for d in range(domains):
            frames[DEPTH + d, BEFORE] = counts[d]
        status = _decode_one(
            data, offsets[row], offsets[row + 1], row, nodes, fields, names, counts, capacity, words, valid, arena,
            numbers, state, frames, expected,
        )  # fmt: skip
        if status == DONE:
            continue
        state[ARENA_USED], state[NUMBERS_USED] = arena_used, numbers_used
        for n in range(len(nodes)):
            d = nodes[n, N_DOMAIN]
            base = nodes[n, N_BASE]
            if d == 0:
                valid[base + row] = 0
            else:
                for i in range(frames[DEPTH + d, BEFORE], min(counts[d], capacity[d])):
                    valid[base + i] = 0
        for d in range(domains):
            counts[d] = frames[DEPTH + d, BEFORE]
        if status == FULL:
            return row
        flags[row] = LEFT
    return rows


@njit(inline="always")
def _after_space(data, at, end):  # type: ignore[no-untyped-def]
    """The place after one space, or `at` where there is none."""
    return at + 1 if at < end and load_u8(data, at) == 32 else at


@njit(inline="always")
def _decode_one(  # type: ignore[no-untyped-def]
    data, at, end, row, nodes, fields, names, counts, capacity, words, valid, arena, numbers, state, frames, expected
):
    """Decode a value: DONE, LEFT or FULL.

    Mostly an object is as the last one was, and `_as_the_last_one` takes all of it. What is not so, `_otherwise` takes.
    The first one is short, so that a processor's registers hold what it needs; the other one is a call.
    """
    begin = at
    at = space(data, at, end)
    if at >= end or load_u8(data, at) != 123:
        return LEFT
    at += 1
    valid[np.uint64(nodes[ROOT, N_BASE] + row)] = 1
    at, seen, todo = _as_the_last_one(data, at, end, row, nodes, words, valid, arena, numbers, state, expected)
    if at >= 0 and todo != CLOSED:
        at = _otherwise(
            data, at, end, row, seen, todo, nodes, fields, names, counts, capacity, words, valid, arena, numbers, state,
            frames, expected,
        )  # fmt: skip
    if at < 0:
        return FULL if at == NO_ROOM else LEFT
    if not is_ascii(data, begin, at) and not is_utf8(data, begin, at):
        return LEFT
    return DONE


@njit(inline="always")
def _as_the_last_one(data, at, end, row, nodes, words, valid, arena, numbers, state, expected):  # type: ignore[no-untyped-def]
    """Fields of the root as long as their names are those that are expected, with one space or none around them, and
    their values no objects and arrays -> (the place before which it ended, BAD or NO_ROOM; how many names there were;
    what comes next)."""
    seen, todo = np.int64(0), NAME_OR_END
    while seen < EXPECTED_NAMES and at < end and load_u8(data, at) == 34:
        name = row_of(seen)
        if not is_expected(data, at + 1, end, expected, name):
            break
        colon = at + 2 + expected[name + NAME_LENGTH]
        value = _after_space(data, colon + 1, end)
        if value >= end or load_u8(data, colon) != 58:
            break
        byte = load_u8(data, value)
        target, kind = expected[name + NAME_NODE], expected[name + NAME_KIND]
        place = np.uint64(expected[name + NAME_BASE] + row)
        if target != 0 and valid[place] != 0:
            return BAD, seen, todo  # the name is there twice
        if byte == 34:
            value = take_string(data, value, end, kind, target, place, nodes, words, valid, arena, state)
        elif byte == 45 or 48 <= byte <= 57:
            value = take_number(data, value, end, kind, target, row, place, nodes, words, valid, numbers, state)
        elif byte == 116 or byte == 102 or byte == 110:
            value = take_word(data, value, end, kind, target, place, words, valid)
        else:
            break
        if value < 0 or value >= end:
            return min(value, BAD), seen, todo
        seen += 1
        byte = load_u8(data, value)
        if byte == 125:
            return value + 1, seen, CLOSED
        if byte != 44:
            return value, seen, AFTER
        at, todo = _after_space(data, value + 1, end), NAME
    return at, seen, todo


@njit(_nrt=False)
def _otherwise(  # type: ignore[no-untyped-def]
    data, at, end, row, seen, todo, nodes, fields, names, counts, capacity, words, valid, arena, numbers, state, frames,
    expected,
):  # fmt: skip
    """The rest of the root, whatever it holds -> the place after it, BAD or NO_ROOM."""
    depth = 0
    frames[ROOT, WHAT], frames[ROOT, NODE], frames[ROOT, SLOT] = IN_STRUCT, ROOT, row
    frames[ROOT, NAMES_SEEN] = seen
    target, slot = np.int64(0), np.int64(0)
    while True:
        at = space(data, at, end)
        if at >= end:
            return BAD
        byte = load_u8(data, at)
        where = frames[depth, WHAT]
        if todo == AFTER:
            if byte == 44:
                at += 1
                todo = NAME if where <= IN_OBJECT else VALUE
                continue
            if byte != (125 if where <= IN_OBJECT else 93):
                return BAD
            closes = True
        else:
            closes = (todo == NAME_OR_END and byte == 125) or (todo == VALUE_OR_END and byte == 93)
        if closes:
            at += 1
            if where == IN_ARRAY or where == IN_MAP:  # noqa: SIM109 - compiled
                node = frames[depth, NODE]
                inner = nodes[nodes[node, N_CHILD], N_DOMAIN]
                words[nodes[node, N_BASE] + frames[depth, SLOT]] = counts[inner] - frames[depth, BEFORE]
            depth -= 1
            if depth < 0:
                return at
            todo = AFTER
            continue
        if todo <= NAME:
            if byte != 34:
                return BAD
            at += 1
            known = BAD
            if where == IN_STRUCT:
                slot = frames[depth, SLOT]
                seen = frames[depth, NAMES_SEEN]
                known = frames[depth, NODE] * EXPECTED_NAMES + seen if seen < EXPECTED_NAMES else BAD
                frames[depth, NAMES_SEEN] = seen + 1
            name = row_of(known)
            if known >= 0 and is_expected(data, at, end, expected, name):
                target = expected[name + NAME_NODE]
                close = at + expected[name + NAME_LENGTH]
                length = np.int64(0)
            else:
                close, escapes = string_end(data, at, end)
                length = close - at
                if close < 0 or length > MAX_NAME or (escapes and where != IN_OBJECT):
                    return BAD
            if where == IN_STRUCT:
                if length > 0 or close == at:
                    node = frames[depth, NODE]
                    table, bits = nodes[node, N_NAMES], nodes[node, N_BITS]
                    target = field_of(data, at, length, end, table, bits, fields, names)
                    if known >= 0:
                        kind, base = nodes[target, N_KIND], nodes[target, N_BASE]
                        expect(data, at, length, target, kind, base, expected, name)
            elif where == IN_MAP:
                target = nodes[frames[depth, NODE], N_CHILD]
                domain = nodes[target, N_DOMAIN]
                slot = counts[domain]
                if slot >= capacity[domain]:
                    state[FULL_DOMAIN] = domain
                    return NO_ROOM
                counts[domain] = slot + 1
                key = nodes[nodes[frames[depth, NODE], N_KEY], N_BASE] + slot
                words[key] = (at << WORD_LENGTH_BITS) | length
                valid[key] = 1
            else:
                target = np.int64(0)
            at = space(data, close + 1, end)
            if at >= end or load_u8(data, at) != 58:
                return BAD
            at = space(data, at + 1, end)
            if at >= end:
                return BAD
            byte = load_u8(data, at)
        elif where == IN_ARRAY:
            target = nodes[frames[depth, NODE], N_CHILD]
            domain = nodes[target, N_DOMAIN]
            slot = counts[domain]
            if slot >= capacity[domain]:
                state[FULL_DOMAIN] = domain
                return NO_ROOM
            counts[domain] = slot + 1
        else:
            target = np.int64(0)
        kind, base = nodes[target, N_KIND], nodes[target, N_BASE]  # of target 0, the root, they are not asked
        todo = AFTER
        place = np.uint64(base + slot)
        if target != 0 and valid[place] != 0:
            return BAD  # the name is there twice
        if byte == 34:
            at = take_string(data, at, end, kind, target, place, nodes, words, valid, arena, state)
        elif byte == 123 or byte == 91:
            depth += 1
            if depth >= DEPTH:
                return BAD
            at += 1
            todo = NAME_OR_END if byte == 123 else VALUE_OR_END
            if target == 0:
                frames[depth, WHAT] = IN_OBJECT if byte == 123 else IN_LIST
                continue
            if byte == 91:
                if kind != K_ARRAY:
                    return BAD
                frames[depth, WHAT] = IN_ARRAY
            elif kind == K_STRUCT:
                frames[depth, WHAT] = IN_STRUCT
            elif kind == K_MAP:
                frames[depth, WHAT] = IN_MAP
            else:
                return BAD
            frames[depth, NODE], frames[depth, SLOT], frames[depth, NAMES_SEEN] = target, slot, 0
            if kind != K_STRUCT:
                frames[depth, BEFORE] = counts[nodes[nodes[target, N_CHILD], N_DOMAIN]]
            valid[place] = 1
        elif byte == 45 or 48 <= byte <= 57:
            at = take_number(data, at, end, kind, target, slot, place, nodes, words, valid, numbers, state)
        elif byte == 116 or byte == 102 or byte == 110:
            at = take_word(data, at, end, kind, target, place, words, valid)
        else:
            return BAD
        if at < 0:
            return at


@kernel
def gather_strings(data, arena, words, valid, offsets, out):  # type: ignore[no-untyped-def]
    """Copy the strings of a node's slots to `out`; offsets: int32, of one more than there are slots, where they go."""
    for i in range(len(words)):
        if valid[i] == 0:
            continue
        word = words[i]
        length = word & MAX_STRING
        if word & WORD_ARENA != 0:
            copy_bytes(out, offsets[i], arena, (word ^ WORD_ARENA) >> WORD_LENGTH_BITS, length)
        else:
            copy_bytes(out, offsets[i], data, word >> WORD_LENGTH_BITS, length)
