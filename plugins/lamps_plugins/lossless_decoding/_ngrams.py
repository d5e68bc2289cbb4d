"""What followed before: an index over a growing text, by its last n tokens."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SuffixIndex"]


class SuffixIndex:
    """Finds earlier places at which the text ended like it ends now.

    Args:
        longest: Longest ending that is looked for; shorter ones follow when it is not found.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Let the text grow."""
        for token in tokens:
            # An ending is known once something follows it, so it never finds itself.
            end = len(self.tokens)
            for n in range(1, min(self.longest, end) + 1):
                self._ends.setdefault(tuple(self.tokens[end - n : end]), []).append(end)
            self.tokens.append(token)

    def followers(self, length: int, most: int) -> list[list[int]]:
        """Up to ``most`` different continuations of ``length`` tokens, the best first.

        The longest ending that occurs counts, and of its places the latest first.
        """
        found: list[list[int]] = []
        size = len(self.tokens)
        for n in range(min(self.longest, size), 0, -1):
            for end in reversed(self._ends.get(tuple(self.tokens[size - n :]), ())):
                tail = self.tokens[end : end + length]
                if not any(tail == known[: len(tail)] for known in found):
                    found.append(tail)
                if len(found) == most:
                    return found
        return found
