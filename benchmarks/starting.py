"""`pbm --help` and `pbm --version` against `python -c pass`: at most 3 times that plus 0.3 s.

python -m benchmarks.starting
"""

import statistics
import sys

from benchmarks.process import PBM, run, verdict

ROUNDS = 15


def main() -> None:
    holds = []
    for option in ("--help", "--version"):
        pairs = [(run(PBM, option).seconds, run(sys.executable, "-c", "pass").seconds) for _ in range(ROUNDS)]
        excess = statistics.median(asked - 3 * bare for asked, bare in pairs)
        print(f"pbm {option}: {statistics.median(asked for asked, _ in pairs):.3f} s", end="  ")
        print(f"python -c pass: {statistics.median(bare for _, bare in pairs):.3f} s")
        holds.append(verdict(f"{option}: seconds beyond 3 times python -c pass", excess, 0.3))
    sys.exit(not all(holds))


if __name__ == "__main__":
    main()
