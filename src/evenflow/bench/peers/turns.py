"""Contenders take turns, so that a slow minute of the machine is everybody's.

    round 1:  A measured, B measured, C measured      all others are held still meanwhile
    round 2:  A measured, B measured, C measured

One that fails is ended and takes no further part; the rest goes on.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from evenflow.bench.peers.disturbance import read, share_of_others
from evenflow.bench.peers.engines import Engine
from evenflow.bench.peers.messages import ContenderFailed

E = TypeVar("E", bound=Engine)
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Field(Generic[E]):
    """Engines by name of contender, all paused; and why some are no longer among them.

    `others` is the largest share of the machine that others took in a turn of each.
    """

    engines: dict[str, E] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)

    def enter(self, name: str, start: Callable[[], E], warm_up: Callable[[E], object]) -> E | None:
        """Start one, and hold it still."""
        try:
            engine = start()
        except ContenderFailed as failure:
            self.failures[name] = str(failure)
            return None
        self.engines[name] = engine
        self._turn(name, lambda name, engine: warm_up(engine))
        return self.engines.get(name)

    def rounds(
        self,
        names: Sequence[str],
        count: int,
        measure: Callable[[str, E], R],
        told: Callable[[str, int], None] = lambda name, index: None,
    ) -> dict[str, list[R]]:
        """What was measured, of those that did every round."""
        seen: dict[str, list[R]] = {name: [] for name in names if name in self.engines}
        for index in range(count):
            for name in tuple(seen):
                told(name, index)
                result = self._turn(name, self._watched(measure))
                if result is None:
                    del seen[name]
                else:
                    seen[name].append(result)
        return seen

    def end(self) -> None:
        for engine in self.engines.values():
            engine.end()
        self.engines.clear()

    def _watched(self, measure: Callable[[str, E], R]) -> Callable[[str, E], R]:
        def watched(name: str, engine: E) -> R:
            before = read(engine.session)
            result = measure(name, engine)
            share = share_of_others(before, read(engine.session), os.cpu_count() or 1)
            self.others[name] = max(share, self.others.get(name, 0.0))
            return result

        return watched

    def _turn(self, name: str, verb: Callable[[str, E], R]) -> R | None:
        engine = self.engines[name]
        try:
            engine.resume()
            return verb(name, engine)
        except ContenderFailed as failure:
            self.failures[name] = str(failure)
            del self.engines[name]
            engine.end()
            return None
        finally:
            if name in self.engines:
                engine.pause()
