"""Stop strings over the streaming text of one slot. Knows no tokens' ids, no tokenizer and no model."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Tells how much text may be shown and cuts it exactly before the first stop string that becomes complete.

    The stop string whose last character comes first wins, the longest of those that end there; so the cut does not
    depend on how the text was split into pieces.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if isinstance(stops, str) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError(f"stops={stops!r} must be a sequence of non-empty strings")
        self.stops = tuple(stops)
        self.matched: str | None = None
        self._held = ""

    @property
    def held(self) -> str:
        """Text fed but not shown, because a stop string may have begun in it."""
        return self._held

    def feed(self, piece: str, may_match: bool = True) -> str:
        """Take one token's text and return what is safe to show now; "" once a stop string has matched.

        Not `may_match`: a stop string that this text completes is passed over, now and later.
        """
        if self.matched is not None:
            return ""
        text, before = self._held + piece, len(self._held)
        starts = [(text.find(stop, max(0, before - len(stop) + 1)), stop) for stop in self.stops if may_match]
        found = [(at + len(stop), -len(stop), stop) for at, stop in starts if at >= 0]
        if found:
            end, minus_length, self.matched = min(found)
            self._held = ""
            return text[: end + minus_length]
        safe = len(text) - self._suspect(text)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """The text still held back, to be shown when the reply ends without a match; "" after one."""
        held, self._held = self._held, ""
        return held

    def copy(self) -> StopMatcher:
        """An independent matcher in the same state, for a forked slot."""
        twin = StopMatcher(self.stops)
        twin.matched, twin._held = self.matched, self._held
        return twin

    def _suspect(self, text: str) -> int:
        """Length of the longest end of text that begins some stop string."""
        longest = max((len(stop) - 1 for stop in self.stops), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self.stops):
                return length
        return 0
