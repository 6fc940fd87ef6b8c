"""How the kernels of this package are compiled."""

from typing import Any

from numba import njit

# _nrt=False: no reference counts. A kernel only reads and writes arrays that its caller owns (it allocates none), and counting
# references to them on every call of a small function took more than half of a round: `python -m benchmarks.playing`.
# error_model="numpy": a division is a division, without a test for 0 that could raise.
OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
kernel = njit(cache=True, nogil=True, forceinline=True, **OPTIONS)
