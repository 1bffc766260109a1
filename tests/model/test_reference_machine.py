"""The public commands against a model in plain Python that predicts every answer, span and total.

The same play is what `make guards` takes the seeded mutants of the ledger through (`model_*.toml`).
"""

import secrets
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.comparing import tally
from tests.model.product import Book, made_book
from tests.model.rules import LedgerMachine

STEPS_MIN = 5_000
MET = (
    *(
        "permitted",
        "admitted",
        "succeeded",
        "failed",
        "no_effect",
        "not_dispatched",
        "outcome_unknown",
        "expired",
    ),
    *(
        "prepare_again",
        "already_consumed",
        "awaiting_approval",
        "denied",
        "class_exhausted",
        "slots_exhausted",
    ),
    *(
        "budget_exceeded",
        "budget_overrun",
        "task_frozen",
        "task_closed",
        "task_expired",
        "task_full",
        "ledger_full",
    ),
    *("lowered", "granted", "accepted", "collected", "request_key_reused", "forbidden", "clock_untrusted"),
)
"""Answers that must come up: what never came up was never compared."""
RULES = pytest.mark.spec(
    *("ADM-01", "ADM-02", "ADM-04", "ADM-05", "ADM-07", "AUD-01", "EFF-11", "LED-02", "LED-05"),
    *("BUD-01", "BUD-02", "BUD-03", "BUD-04", "BUD-05", "BUD-06", "PER-03", "PER-04", "POL-02", "POL-03"),
    *("REC-07", "REP-01", "REP-03", "REP-04", "REP-05", "REP-06"),
)


@pytest.fixture(scope="module")
def book() -> Iterator[Book]:
    with made_book() as made:
        yield made


def play(book: Book, *, at_seed: int, plays: int, steps: int) -> None:
    """Play so many times so many steps; equal seeds play equal ones.

    Each is an example of its own: of several Hypothesis makes the later ones out of parts of the earlier. Nothing is
    shrunk: that would take longer than a guard may. A failure shows each deed with what was drawn for it.
    """
    for number in range(plays):
        factory: Callable[[], LedgerMachine] = seed(at_seed + number)(lambda: LedgerMachine(book))
        run_state_machine_as_test(
            factory,  # type: ignore[arg-type]  # it may be anything that makes a machine
            settings=settings(
                max_examples=1,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            ),
        )


@RULES
def test_the_model_predicts_every_answer(book: Book) -> None:
    tally.clear()
    play(book, at_seed=62, plays=24, steps=50)
    assert not {f"answer {code}" for code in MET} - set(tally)


@RULES
@pytest.mark.soak
def test_the_model_predicts_every_answer_for_thousands_of_steps(
    book: Book, capsys: pytest.CaptureFixture[str]
) -> None:
    tally.clear()
    number = secrets.randbelow(2**31)
    with capsys.disabled():
        print(f"\n  the model is played from seed {number} on")  # noqa: T201 - how to play it again
    while tally["steps"] < STEPS_MIN:
        play(book, at_seed=number, plays=1, steps=60)
        number += 1
    with capsys.disabled():
        print(figures())  # noqa: T201 - what a long run is for


def figures() -> str:
    """Return what was played, for people: steps, then deeds and answers, the most frequent first."""
    lines = ["", f"  {tally['steps']} steps, {tally['restarts']} restarts, no difference"]
    for kind in ("deed", "answer"):
        found = [name for name, _count in tally.most_common() if name.startswith(f"{kind} ")]
        lines.append(
            f"  {kind}s: " + ", ".join(f"{name.removeprefix(f'{kind} ')} {tally[name]}" for name in found)
        )
    return "\n".join(lines)
