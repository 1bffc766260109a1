"""How a sink does in this process: what it acknowledged last, whether it fails, and what of that is not on record yet.

Rules: AUD-02 (a sink that fails is on record), AUD-07 (a reason is a word: no sink writes free text into the trail).
A change from good to failed and back is one word; what fails again meanwhile is only counted, so that nobody's requests
flood the trail. Whether a word is written, and how often, is for `issuer.sink_words` to say: others have words as well.
Not safe by itself: whoever has the sink's lock calls it. It does no input or output.
Next: `audit.sink_thread`.
"""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Health", "SinkWord"]

_REASON: Final = re.compile(r"[a-z]{1,20}(_[a-z]{1,20}){0,3}\Z")
"""What a reason looks like: a plug-in's may be anything, and digits could be somebody's number."""

NO_FAILURE: Final = frozenset({"closed", "forked", "no_thread", "not_loaded"})
"""Reasons that say something about this process, and nothing about the sink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkWord:
    """What should be on record about one sink.

    Attributes:
        reason: why it fails; empty where it works.
        count: how often it failed in this process since the last word; 0 where it was never seen failing here.
        upto: the last sequence that it acknowledged in this process, None where there is none.
    """

    name: str
    reason: str
    count: int
    upto: int | None


class Health:
    """One sink, as this process meets it."""

    def __init__(self, name: str) -> None:
        """Know nothing yet."""
        self.reached: int | None = None
        """The last sequence that it acknowledged or was seen to hold."""
        self._name = name
        self._reason: str | None = None
        self._count = 0
        self._is_pending = False

    def failed(self, reason: str) -> None:
        """Count a failure; the first one since it worked, and one for another reason, is a new word."""
        if reason in NO_FAILURE:
            return
        word = reason if _REASON.match(reason) else "failed"
        self._count += 1
        if word != self._reason:
            self._reason, self._is_pending = word, True

    def worked(self, sequence: int) -> None:
        """Take in an acknowledgement; the first one in this process is a word too, since another may have failed."""
        self.reached = max(sequence, self.reached or 0)
        if self._reason != "":
            self._reason, self._is_pending = "", True

    def word(self) -> SinkWord | None:
        """Return what should be on record and is not yet, as far as this process knows."""
        if not self._is_pending or self._reason is None:
            return None
        return SinkWord(name=self._name, reason=self._reason, count=self._count, upto=self.reached)

    def told(self, word: SinkWord) -> None:
        """Take note that `word` is on record, or need not be; what has changed since is still to be told."""
        if word.reason == self._reason:
            self._is_pending = False
            self._count = max(0, self._count - word.count)
