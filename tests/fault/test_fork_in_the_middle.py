"""A process forks in the middle of a command, and both go on with it: the child is refused, the parent is not hurt.

The child is a copy that stands under the parent's lock, in its transaction, with its claim. Whichever of the two is
let go first, an effect happens at most once, and nothing that the child was answered says that it did something.
"""

from dataclasses import dataclass

import pytest

from tests.support.committing import Job
from tests.support.issuers import Made
from tests.support.kills import WAY, Nursery, step_number, untouched_state
from tests.support.transitions import (
    ACTOR,
    CONTENT,
    TASK,
    ask_note,
    assert_clean,
    money,
    soak_issuer,
)

REFUSED = frozenset(
    {"ledger_unavailable", "audit_unavailable", "outcome_unknown", "LedgerUnavailable", "AuditUnavailable"}
)
"""What a child may be answered; where it is a copy of a winner, that the outcome is not known is true for it."""
KNOWN = {"outcome_acknowledged": "succeeded", "committed": "permitted"}
"""What was durable before the fork, and all that is left to do is to say so."""

REQUEST_STEPS = ("locked", "before_commit", "committed")
ORDERS = ("parent", "child")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """One issuer for all forks."""

    made: Made
    nursery: Nursery

    def forked(self, job: Job) -> tuple[str, dict[str, object]]:
        """Run a job; return what the child and the parent were answered."""
        with self.nursery.start(job) as process:
            assert process.ended() == 0, process.lines
            (child,) = [str(line["forked"]) for line in process.lines if "forked" in line]
            return child, process.answer()


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Ground:
    return Ground(made=soak_issuer(tmp_path_factory.mktemp("forks") / "i"), nursery=nursery)


@pytest.mark.spec("ADM-02", "ADM-03", "ADM-04", "AUD-03", "LED-01")
@pytest.mark.parametrize("waits", ORDERS)
@pytest.mark.parametrize("step", WAY)
def test_a_fork_at_a_step_of_a_commit_is_refused_in_the_child_and_sends_once(
    ground: Ground, step: str, waits: str
) -> None:
    name = f"{step.replace(':', '-')}-{waits}"
    with ground.made.open() as issuer:
        effect, before = ask_note(issuer, name), money(issuer)
    child, parent = ground.forked(
        Job(
            profile=str(ground.made.profile),
            command="commit",
            arguments={"effect": effect},
            at=step_number(step),
            forks=waits,
        )
    )
    assert child in REFUSED or child == KNOWN.get(step)
    assert parent["code"] == "succeeded"
    assert (ground.made.folder / "outbox" / name).read_text() == CONTENT
    assert_clean(ground.made)
    with ground.made.open() as issuer:
        assert untouched_state(issuer, effect) == "succeeded"
        assert money(issuer) == (before[0], before[1] + 1)


@pytest.mark.spec("EFF-11", "PER-05", "AUD-03", "LED-01")
@pytest.mark.parametrize("waits", ORDERS)
@pytest.mark.parametrize("step", REQUEST_STEPS)
def test_a_fork_at_a_step_of_a_request_is_refused_in_the_child_and_makes_one_effect(
    ground: Ground, step: str, waits: str
) -> None:
    name = f"asked-{step}-{waits}"
    child, parent = ground.forked(
        Job(
            profile=str(ground.made.profile),
            command="request",
            arguments={
                "operation": "note",
                "payload": {"path": name, "content": CONTENT},
                "task": TASK,
                "actor": ACTOR,
                "request_key": name,
            },
            at=REQUEST_STEPS.index(step) + 1,
            forks=waits,
        )
    )
    assert child in REFUSED or child == KNOWN.get(step)
    assert parent["code"] == "permitted"
    assert_clean(ground.made)
    with ground.made.open() as issuer:
        assert ask_note(issuer, name) == parent["effect"]
