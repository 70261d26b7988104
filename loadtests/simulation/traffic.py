"""What is asked and when: laid down by a seed before anything is answered, the same for every policy."""

import random
from collections.abc import Iterator
from itertools import count

from simulation.door import Ask

BYTES = 4
BETWEEN_TURNS = 12.0
Schedule = list[tuple[float, Ask]]


class Text:
    """Text in which hardly two pieces are the same."""

    def __init__(self, draw: random.Random) -> None:
        self._words = " ".join("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(16384))

    def piece(self, draw: random.Random, tokens: int) -> str:
        """So many tokens."""
        size = tokens * BYTES
        at = draw.randrange(len(self._words) - size)
        return self._words[at : at + size]


def times(draw: random.Random, rate: float, seconds: float) -> Iterator[float]:
    """Arrivals by chance at a mean rate."""
    at = draw.expovariate(rate)
    while at < seconds:
        yield at
        at += draw.expovariate(rate)


def prompts(seed: int, rate: float, seconds: float, median: float = 500.0) -> Schedule:
    """Single prompts of log-normal length: one in a hundred is ten times the median."""
    draw = random.Random(seed)
    text, names = Text(draw), count(1)
    found = []
    for at in times(draw, rate, seconds):
        tokens = int(min(max(draw.lognormvariate(0.0, 1.0) * median, 16), 16_000))
        answer = int(min(max(draw.lognormvariate(0.0, 0.7) * 150, 8), 2000))
        message = {"role": "user", "content": text.piece(draw, tokens)}
        found.append((at, Ask([message], [(next(names), tokens)], answer)))
    return found


def chats(seed: int, rate: float, seconds: float, systems: int = 150) -> Schedule:
    """Conversations of one to eight turns; each begins with one of many system prompts, some far more frequent."""
    draw = random.Random(seed)
    text, names = Text(draw), count(1)
    known = []
    for _ in range(systems):
        tokens = draw.randrange(1500, 6000)
        known.append((next(names), tokens, text.piece(draw, tokens)))
    shares = [1.0 / (number + 1) for number in range(systems)]
    found = []
    for begin in times(draw, rate, seconds):
        [(name, tokens, system)] = draw.choices(known, shares)
        messages, parts, at = [{"role": "system", "content": system}], [(name, tokens)], begin
        for _ in range(draw.randrange(1, 9)):
            asked, answer = draw.randrange(20, 200), draw.randrange(50, 300)
            messages.append({"role": "user", "content": text.piece(draw, asked)})
            parts.append((next(names), asked))
            found.append((at, Ask(list(messages), list(parts), answer)))
            messages.append({"role": "assistant", "content": text.piece(draw, answer)})
            parts.append((next(names), answer))
            at += BETWEEN_TURNS * draw.uniform(0.5, 1.5)
    return sorted([one for one in found if one[0] < seconds], key=lambda one: one[0])
