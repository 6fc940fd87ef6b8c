"""What to say of a name that nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.75  # of the letters; less is a guess that misleads


def near(word: str, known: Iterable[str]) -> str:
    """The end of an error: the nearest of the known names, or all of them."""
    names = list(known)
    found = get_close_matches(word, names, n=1, cutoff=ALIKE)
    return f"; did you mean {found[0]!r}?" if found else f"; there are {', '.join(names)}"
