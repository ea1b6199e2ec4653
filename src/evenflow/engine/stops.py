"""Stop strings in a stream of text: an Aho-Corasick automaton, so each character costs the same for any number of them.

The automaton's state after a character is the longest end of the text that begins some stop string, so the state itself
says how much text to hold back. Both rules below look at characters only, never at how they came in pieces, so the
result does not depend on the tokenization:

    the match that ends first wins; of several that end at the same character, the longest.
"""

from collections import deque
from collections.abc import Sequence

from evenflow.core.errors import InvalidRequest

MAX_STOP_CHARS = 8192


class _Automaton:
    """`matched[node]`: the longest stop string that ends there. `hold[node]`: how many characters may grow into one."""

    __slots__ = ("children", "fallback", "hold", "matched")

    def __init__(self, stop: Sequence[str]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.matched: list[str | None] = [None]
        self.fallback: list[int] = [0]
        self.hold: list[int] = [0]
        for text in stop:
            self._insert(text)
        self._link()

    def _insert(self, text: str) -> None:
        node = 0
        for char in text:
            if char not in self.children[node]:
                self.children[node][char] = len(self.children)
                self.children.append({})
                self.matched.append(None)
                self.fallback.append(0)
                self.hold.append(self.hold[node] + 1)
            node = self.children[node][char]
        self.matched[node] = text

    def _link(self) -> None:
        """Breadth first, because a node's fallback is shallower than the node. Until then `hold` is the depth."""
        queue = deque([0])
        while queue:
            node = queue.popleft()
            for char, child in self.children[node].items():
                queue.append(child)
                back = self.step(self.fallback[node], char) if node else 0
                self.fallback[child] = back
                self.matched[child] = self.matched[child] or self.matched[back]
                if not self.children[child]:
                    # A whole stop string (that did not count) cannot grow; what it ends with may.
                    self.hold[child] = self.hold[back]

    def step(self, node: int, char: str) -> int:
        while node and char not in self.children[node]:
            node = self.fallback[node]
        return self.children[node].get(char, 0)


class StopMatcher:
    """Lets text through up to where a stop string may have begun. After a match (`matched`) it takes no more text."""

    __slots__ = ("_automaton", "_held", "_include", "_node", "matched")

    def __init__(self, stop: Sequence[str], *, include_stop_str_in_output: bool = False) -> None:
        if not all(stop):
            raise InvalidRequest("stop must not contain an empty string", param="stop")
        if sum(map(len, stop)) > MAX_STOP_CHARS:
            raise InvalidRequest(f"stop must not have more than {MAX_STOP_CHARS} characters in all", param="stop")
        self._automaton = _Automaton(stop) if stop else None
        self._include = include_stop_str_in_output
        self._node = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, *, armed: bool = True) -> str:
        """The text that may go out now. A match that ends in `text` counts only if `armed`."""
        assert self.matched is None
        automaton = self._automaton
        if automaton is None:
            return text
        node = self._node
        for index, char in enumerate(text):
            node = automaton.step(node, char)
            matched = automaton.matched[node]
            if armed and matched is not None:
                return self._stop_at(matched, self._held + text[: index + 1])
        self._node = node
        known = self._held + text
        cut = len(known) - automaton.hold[node]
        self._held = known[cut:]
        return known[:cut]

    def _stop_at(self, matched: str, known: str) -> str:
        self.matched = matched
        self._held = ""
        return known if self._include else known[: len(known) - len(matched)]

    def flush(self) -> str:
        """Generation ended otherwise: the text that was held back."""
        held, self._held = self._held, ""
        return held
