"""The one answer: the same object for the command line, the Python API and every later surface (SUR-01, SUR-03).

Keys, in this order: v issuer effect code state mode operation resource cost expires retryable next say. Further
facts of one command (a claim, a timeline, a list) stand beside them under `more`, by name, and in JSON on top level.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from issuer.wire.codes import CODES, Exit

ANSWER_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one command answers. A no is an answer too; only faults are exceptions.

    Attributes:
        issuer: the issuer's name and the first digits of its ledger id.
        code: one of `issuer.wire.codes.CODES`.
        mode: `strict` or `ordinary` (OPR-03).
        effect, state, operation, resource, expires: of the effect in question, else None.
        cost: maximum cost per unit, whole numbers.
        say: one sentence for a person or a model; the code's own, or the owner's.
        more: further facts of this command.
    """

    issuer: str
    code: str
    mode: str
    effect: str | None = None
    state: str | None = None
    operation: str | None = None
    resource: str | None = None
    cost: Mapping[str, int] | None = None
    expires: str | None = None
    say: str = ""
    more: Mapping[str, object] = field(default_factory=dict)

    @property
    def exit(self) -> Exit:
        """The exit code that the command line ends with."""
        return CODES[self.code].exit

    @property
    def next(self) -> str:
        """What to do next."""
        return str(CODES[self.code].next)

    @property
    def retryable(self) -> bool:
        """Whether asking again for the same effect may be answered otherwise."""
        return CODES[self.code].retryable

    def as_json(self) -> dict[str, object]:
        """Return the answer as the one JSON object of every surface."""
        return {
            "v": ANSWER_VERSION,
            "issuer": self.issuer,
            "effect": self.effect,
            "code": self.code,
            "state": self.state,
            "mode": self.mode,
            "operation": self.operation,
            "resource": self.resource,
            "cost": None if self.cost is None else dict(self.cost),
            "expires": self.expires,
            "retryable": self.retryable,
            "next": self.next,
            "say": self.say or CODES[self.code].say,
            **self.more,
        }
