"""Every way in which sending one effect can go, for every adapter: where it goes wrong, and what must be true after it.

The table is data; `tests/fault/test_situations.py` plays each row for real and compares.
`python -m tests.support.situations` prints `docs/reference/situations.md`.
A row's moment is seen from the first byte (of a request, of a change of a file, of a command that runs): *before* it,
*during* the exchange, or *after* it was answered. No row may leave more than one effect.
"""

import sys
from dataclasses import dataclass
from typing import Final, Literal

COST: Final = 300
"""What each effect of the table may cost at most, in its one unit."""

Adapter = Literal["http", "file", "dispatch", "host", "python"]
Moment = Literal["before", "during", "after"]

TITLES: Final[dict[Adapter, str]] = {
    "http": "`http`: the issuer sends a request",
    "file": "`file`: the issuer changes a file",
    "dispatch": "`host`, with `dispatch EFFECT -- COMMAND`",
    "host": "`host`, with `admit` and `report`",
    "python": "`python`: a third party's adapter sends a request",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One row.

    Attributes:
        what: what happens, in words; unique for its adapter and moment.
        code: what the caller is told; empty where the call is interrupted and nobody is told anything.
        state: where the effect stands afterwards; empty where none was made.
        sent: how often the request, change or command happened.
        effects: how many effects there are then: of sent ones nobody may know.
        held, charged: what the effect keeps of the budget, and what it was charged.
    """

    adapter: Adapter
    moment: Moment
    what: str
    code: str
    state: str
    sent: int
    effects: int
    held: int = 0
    charged: int = 0

    @property
    def name(self) -> str:
        """The row's name, as tests show it."""
        return f"{self.adapter}: {self.moment}: {self.what}"


def _before(adapter: Adapter, what: str, code: str, state: str = "no_effect") -> Situation:
    """Nothing left: nothing is held and nothing is charged."""
    return Situation(adapter=adapter, moment="before", what=what, code=code, state=state, sent=0, effects=0)


def _lost(
    adapter: Adapter, what: str, *, effects: int, moment: Moment = "during", sent: int = 1
) -> Situation:
    """It was sent and nobody knows: the maximum stays held."""
    return Situation(
        adapter=adapter,
        moment=moment,
        what=what,
        code="outcome_unknown",
        state="unknown",
        sent=sent,
        effects=effects,
        held=COST,
    )


def _ended(
    adapter: Adapter,
    what: str,
    code: str,
    *,
    effects: int,
    charged: int,
    state: str = "",
    moment: Moment = "after",
) -> Situation:
    """It was sent, and how it ended is proven."""
    return Situation(
        adapter=adapter,
        moment=moment,
        what=what,
        code=code,
        state=state or code,
        sent=1,
        effects=effects,
        charged=charged,
    )


_HTTP: Final = (
    _before("http", "the host has no address", "cannot_prepare", ""),
    _before("http", "what is read before cannot be read", "target_unreadable", ""),
    _before("http", "what is read before has changed at the commit", "prepare_again", "permitted"),
    _before("http", "what is read before cannot be read at the commit", "target_unreadable", "permitted"),
    _before("http", "the port refuses the connection", "not_dispatched"),
    _before("http", "the other side speaks no TLS", "not_dispatched"),
    _before("http", "the credential is missing", "not_dispatched"),
    _before("http", "the deadline passes before the first byte", "prepare_again"),
    _before("http", "a required sink dies after the admission", "prepare_again"),
    _before("http", "the task is frozen after the admission", "prepare_again"),
    _before("http", "the call is interrupted before the first byte", ""),
    _lost("http", "the service closes the connection unread", effects=0),
    _lost("http", "the service closes after the effect", effects=1),
    _lost("http", "the service resets after the effect", effects=1),
    _lost("http", "half an answer", effects=1),
    _lost("http", "an answer that is no HTTP", effects=1),
    _lost("http", "an interim answer only", effects=1),
    _lost("http", "a declared success whose body is cut", effects=1),
    _lost("http", "a declared failure whose body is cut", effects=1),
    _lost("http", "a declared no effect whose body is cut", effects=1),
    _lost("http", "an answer with two lengths", effects=1),
    _lost("http", "no answer within the deadline", effects=1),
    _lost("http", "an answer byte by byte past the deadline", effects=1),
    _lost("http", "the effect comes late, after a close without a word", effects=1),
    _lost("http", "a redirect", effects=0),
    _lost("http", "a success that is not declared", effects=1),
    _lost("http", "accepted, and not declared", effects=1),
    _lost("http", "accepted, as declared: no job is done by that", effects=1, moment="after"),
    _lost("http", "a part, as declared", effects=1, moment="after"),
    _lost("http", "a declared success that does not say its declared charge", effects=1),
    _lost("http", "not found", effects=0),
    _lost("http", "too many requests", effects=0),
    _lost("http", "unavailable", effects=0),
    _lost("http", "an error of the service after the effect", effects=1),
    _ended("http", "a declared success", "succeeded", effects=1, charged=COST),
    _ended("http", "a declared success after interim answers", "succeeded", effects=1, charged=COST),
    _ended("http", "a declared success that says what it charged", "succeeded", effects=1, charged=120),
    _ended("http", "a declared failure", "failed", effects=0, charged=COST),
    _ended("http", "a declared no effect", "no_effect", effects=0, charged=0),
    _ended(
        "http", "a required sink dies after the send", "audit_pending", effects=1, charged=COST, state="succeeded"
    ),
    Situation(
        adapter="http", moment="after", what="the call is interrupted once it is answered", code="",
        state="unknown", sent=1, effects=1, held=COST,
    ),
)  # fmt: skip

_FILE: Final = (
    _before("file", "the file to create is there already", "cannot_prepare", ""),
    _before("file", "the file to delete is not there", "cannot_prepare", ""),
    _before("file", "the folder is open to others, and replacing is asked for", "cannot_prepare", ""),
    _before("file", "the file appears after the permit", "prepare_again", "permitted"),
    _before("file", "the file to replace is edited after the permit", "prepare_again", "permitted"),
    _before("file", "the file to replace is edited after the admission", "not_dispatched"),
    _before("file", "the file to delete is replaced by a link after the admission", "not_dispatched"),
    _before("file", "the folder is gone after the admission", "not_dispatched"),
    _before("file", "the deadline passes before the change", "prepare_again"),
    _ended("file", "the name is taken in the last moment", "no_effect", effects=0, charged=0, moment="during"),
    _ended("file", "the file is created", "succeeded", effects=1, charged=COST),
    _ended("file", "the file is replaced", "succeeded", effects=1, charged=COST),
    _ended("file", "the file is deleted", "succeeded", effects=1, charged=COST),
    Situation(
        adapter="file", moment="after", what="the call is interrupted once the file is changed", code="",
        state="unknown", sent=1, effects=1, held=COST,
    ),
)  # fmt: skip

_DISPATCH: Final = (
    _before("dispatch", "the command cannot be started", "not_dispatched"),
    _before("dispatch", "the deadline passes before the command", "prepare_again"),
    _lost("dispatch", "the command ends with another code than 0", effects=1),
    _lost("dispatch", "the command is ended by a signal", effects=1),
    _lost("dispatch", "the command is not done at the deadline", effects=1),
    _lost("dispatch", "a process that the command left behind would go on", effects=1),
    _ended("dispatch", "the command ends with 0", "succeeded", effects=1, charged=COST),
)

_HOST: Final = (
    _before("host", "a required sink dies after the admission", "prepare_again"),
    _lost("host", "the host says nothing until the deadline", effects=1),
    _lost("host", "the host says that it does not know", effects=1, moment="after"),
    Situation(
        adapter="host", moment="after", what="somebody else reports", code="forbidden",
        state="admitted", sent=1, effects=1, held=COST,
    ),
    _ended("host", "the host says that it is done", "succeeded", effects=1, charged=COST),
    _ended("host", "the host says so late, after the deadline", "succeeded", effects=1, charged=COST),
)  # fmt: skip

_PYTHON: Final = (
    _before("python", "the adapter fails to prepare", "cannot_prepare", ""),
    _before("python", "the adapter's look before the commit fails", "target_unreadable", "permitted"),
    _before("python", "the adapter proves that it sent nothing", "not_dispatched"),
    _lost(
        "python", "the adapter fails before it sends, and proves nothing", effects=0, moment="before", sent=0
    ),
    _lost("python", "the adapter fails after it sent", effects=1),
    _lost("python", "the service closes without a word", effects=1),
    _lost("python", "an answer of another shape", effects=1),
    _lost("python", "accepted: no job is done by that", effects=1, moment="after"),
    _lost("python", "a part", effects=1, moment="after"),
    _ended("python", "success", "succeeded", effects=1, charged=COST),
    _ended("python", "success that says what it charged", "succeeded", effects=1, charged=120),
    _ended("python", "failure", "failed", effects=0, charged=COST),
    _ended("python", "no effect", "no_effect", effects=0, charged=0),
)

SITUATIONS: Final = (*_HTTP, *_FILE, *_DISPATCH, *_HOST, *_PYTHON)


def page() -> str:
    """Return the reference page, in Markdown."""
    lines = [
        "# Situations",
        "",
        "Printed by `python -m tests.support.situations`. Each row is played for real by",
        "`tests/fault/test_situations.py`, which then asks everything once more: nothing is sent a second time.",
        f"Each effect may cost {COST}. *Sent* and *effects* are how often it left, and how often it then happened.",
        "*Before*, *during* and *after* are seen from the first byte.",
    ]
    for adapter, title in TITLES.items():
        lines += ["", f"## {title}", ""]
        lines += ["| when | what happens | answer | state | sent | effects | held | charged |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for row in SITUATIONS:
            if row.adapter == adapter:
                said = f"`{row.code}`" if row.code else "none"
                state = f"`{row.state}`" if row.state else "none"
                numbers = f"{row.sent} | {row.effects} | {row.held} | {row.charged}"
                lines.append(f"| {row.moment} | {row.what} | {said} | {state} | {numbers} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
