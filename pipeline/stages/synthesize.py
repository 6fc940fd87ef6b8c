"""`pbm synthesize`: a log in the KDD format with the published models planted, the same for the same seed."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import saving
from pipeline.artefacts import TRUTH, Provenance
from pipeline.errors import DataError
from pipeline.log.scanning import cores
from pipeline.progress import progress
from pipeline.synthesis import background, planted, shares, spelling
from pipeline.synthesis.background import CHUNK, Tables
from pipeline.synthesis.spelling import COLUMNS, LONGEST_LINE


class Synthesized(NamedTuple):
    """What was written."""

    lines: int
    planted: int  # lines of the published models
    near_misses: int
    background: int
    bytes: int


class Piece(NamedTuple):
    """A chunk of lines of the log: of the planted ones, or of the background."""

    is_planted: bool
    number: int
    size: int


def synthesize(out: Path, workspace: Path, lines: int, seed: int) -> Synthesized:
    """Write the log to `out`, and what was planted to the workspace's `raw/truth.parquet`."""
    tables = background.tables()
    planted_seed, background_seed = np.random.SeedSequence(seed).spawn(2)
    planted_lines = planted.draw(planted_seed, tables)
    n_planted = planted_lines.cell.size
    if lines < n_planted:
        raise DataError(
            f"--lines is {lines:,}, expected at least {n_planted:,}: the published models and the near misses beside them"
        )
    truth = planted.truth(planted_lines)
    with saving.saving(workspace) as save, progress("writing", lines, unit="lines") as advance:
        file = save.file(out)
        written = size = 0
        for text, n in texts(pieces(n_planted, lines - n_planted), planted_lines, tables, background_seed):
            file.write(text)
            written, size = written + n, size + len(text)
            advance(written)
        save.write(TRUTH, truth, Provenance({"seed": seed}, {}))
    models = int(truth["displays"].sum())
    return Synthesized(lines, models, n_planted - models, lines - n_planted, size)


def pieces(n_planted: int, n_background: int) -> list[Piece]:
    """Planted and background chunks, spread evenly over the log."""
    spread = []
    for is_planted, n in ((True, n_planted), (False, n_background)):
        chunks = -(-n // CHUNK)
        spread += [((i + 0.5) / chunks, Piece(is_planted, i, min(CHUNK, n - i * CHUNK))) for i in range(chunks)]
    return [piece for _, piece in sorted(spread)]


def texts(
    plan: list[Piece], planted_lines: planted.Lines, tables: Tables, seed: np.random.SeedSequence
) -> Iterator[tuple[memoryview, int]]:
    """The text and the lines of each piece, made on threads; in the order of the log."""
    n_background = sum(not piece.is_planted for piece in plan)
    keys = planted.keys()
    threads = cores()

    def text(piece: Piece) -> tuple[memoryview, int]:
        if piece.is_planted:
            part = planted.columns(planted_lines, keys, piece.number * CHUNK, piece.number * CHUNK + piece.size)
            variants = np.zeros(piece.size, np.uint64)
        else:
            part, variants = _background(piece, n_background, tables, seed)
        spelling.dress(part, variants)
        buffer = np.empty(piece.size * LONGEST_LINE, np.uint8)
        return buffer.data[spelling.spell(part, buffer) :], piece.size

    running: deque[Future[tuple[memoryview, int]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for piece in plan:
            running.append(pool.submit(text, piece))
            if len(running) > threads + 1:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _background(
    piece: Piece, of: int, tables: Tables, seed: np.random.SeedSequence
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A chunk of the background. Its generator follows from its number, so that no chunk waits for another."""
    own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, piece.number))
    columns, variants = np.zeros((COLUMNS, piece.size), np.uint64), np.zeros(piece.size, np.uint64)
    head = piece.number < shares.WITHOUT_USER_0_AT_FIRST * of
    user_0_run = 0.0 if head else background.user_0_runs(shares.user_0_share() / (1 - shares.WITHOUT_USER_0_AT_FIRST))
    background.fill(np.random.Generator(np.random.PCG64(own)), tables, piece.number, user_0_run, columns, variants)
    return columns, variants
