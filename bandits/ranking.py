"""Putting arms in order."""

from bandits.kernel import kernel


@kernel
def top(index, action):
    """Write the arms with the largest indices, best first; of equal ones the lower number comes first.

    index: float[K]; action: int[L]. Arms are shuffled before each run: a number tells nothing. By insertion, as L is small.
    """
    held = 0
    for k in range(index.size):
        if held == action.size and not index[k] > index[action[held - 1]]:
            continue
        if held < action.size:
            held += 1
        place = held - 1
        while place > 0 and index[k] > index[action[place - 1]]:
            action[place] = action[place - 1]
            place -= 1
        action[place] = k
