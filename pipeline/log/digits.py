"""Numbers in text, eight digits at a time (the technique of Lemire and Langdale's parsers).

A loop over single digits waits for the processor's guess of where each number ends, which it cannot know: this takes a tenth to a
fifth off the parser's time (`benchmarks/parsing.py`). Two instructions that numba has no name for are spelled in LLVM's terms.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

PADDING = 8  # bytes behind the last digit that are looked at
LONGEST = 20  # digits of the largest 64-bit integer
OVERFLOW = np.uint64(10**19)  # a number of 20 digits below this has wrapped around, or starts with 0
ONE_DIGIT = ord("1")

U3, U8, U16, U32, U56 = (np.uint64(shift) for shift in (3, 8, 16, 32, 56))
BYTES = ~np.uint64(7)  # of a number of bits, those of whole bytes
ZEROS = np.uint64(0x3030303030303030)  # eight times "0"
HIGH_BITS, LOW_BITS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
ABOVE_NINE = np.uint64(0x7676767676767676)  # lifts 10 and more, and nothing less, to the high bit
PAIRS, FOURS, EIGHTS = np.uint64(10 * 2**8 + 1), np.uint64(100 * 2**16 + 1), np.uint64(10000 * 2**32 + 1)
EVERY_SECOND, EVERY_FOURTH = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
POWERS = np.array([10**n for n in range(9)], np.uint64)


@intrinsic
def word_at(typing_context, text, at):
    """The eight bytes from `text[at]` as one integer, the first byte lowest."""

    def load(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(text, types.int64), load


@intrinsic
def trailing_zeros(typing_context, bits):
    """How many zero bits there are below the lowest one of a number that is not 0."""

    def count(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), count


@njit(cache=True, nogil=True)
def number(text, at):
    """The digits that start at `text[at]`: their value modulo 2^64, and how many there are."""
    value = np.uint64(0)
    length = 0
    while True:
        digits = word_at(text, at + length) ^ ZEROS
        stops = (((digits & LOW_BITS) + ABOVE_NINE) | digits) & HIGH_BITS  # the high bit of every byte that is no digit
        if stops == 0:
            value = value * POWERS[8] + eight_digits(digits)
            length += 8
            continue
        bits = trailing_zeros(stops) & BYTES
        # The digits move to the end of the word; in two steps, as a shift by 64 is not defined.
        last = eight_digits((digits << (U56 - bits)) << U8)
        return value * POWERS[bits >> U3] + last, length + np.int64(bits >> U3)


@njit(cache=True, nogil=True)
def eight_digits(digits):
    """The number that eight bytes of 0 to 9 spell, the first one lowest."""
    digits = (digits * PAIRS) >> U8
    digits = ((digits & EVERY_SECOND) * FOURS) >> U16
    return ((digits & EVERY_FOURTH) * EIGHTS) >> U32


@njit(cache=True, nogil=True)
def fits(value, length, first):
    """Whether digits of this value modulo 2^64, length and first digit spell a number below 2^64 (20 of them: not from 0 on)."""
    return 0 < length < LONGEST or (length == LONGEST and first <= ONE_DIGIT and value >= OVERFLOW)
