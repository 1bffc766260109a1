"""What the rules draw: few names and small numbers, so that what should not meet meets often."""

from typing import Final

from hypothesis import strategies as st

from tests.model.reference import Outcome
from tests.model.reference_tasks import NewTask
from tests.model.terms import ORDERS, UNITS

SUBJECT: Final = "u-ana"
BOTH: Final = ("agent-7", "agent-8")
Words = dict[str, int | str]
"""Counts or amounts by name, `inherit` among them."""

who = st.sampled_from(["a", "a", "a", "b"])
number = st.integers(0, 30)
"""Which one of those there are, counted around."""

operation = st.sampled_from(["publish", "publish", "refund", "refund", "announce"])
order = st.sampled_from(ORDERS)
amount = st.sampled_from([0, 1, 2, 3, 5, 8, 12, 13])
unit = st.sampled_from(UNITS)

ceiling = st.sampled_from([0, 1, 4, 9, 15, 40, "inherit"])
budgets = st.fixed_dictionaries({}, optional=dict.fromkeys(UNITS, ceiling))
useful = st.fixed_dictionaries({name: st.sampled_from([9, 30, "inherit", "inherit"]) for name in UNITS})
grants = st.dictionaries(unit, st.sampled_from([0, 1, 2, 6]), max_size=2)
lowered = st.dictionaries(unit, st.sampled_from([0, 2, 5, 9, 12]), max_size=2)

count = st.sampled_from([1, 2, 3, 20, "inherit", "inherit"])
classes = st.fixed_dictionaries({}, optional={"release": count, "refund": count}).filter(bool)
operations = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["publish", "refund", "announce"], count)
).filter(bool)
resources = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["Release:o-1", "Release:o-2", "Order:o-1", "Order:o-3"], count)
).filter(bool)

asked_of_tasks = st.fixed_dictionaries(
    {
        "budget": budgets,
        "hours": st.sampled_from([0, 1, 30]),
        "scope": st.fixed_dictionaries(
            {
                "class": st.none() | classes,
                "operation": st.none() | operations,
                "resource": st.none() | resources,
            }
        ),
        "actors": st.sampled_from([(), (), ("agent-7",), BOTH]),
        "subject": st.sampled_from([None, SUBJECT, SUBJECT, "u-ben"]),
    }
)
odd_words = st.fixed_dictionaries(
    {},
    optional={
        "actor": st.sampled_from(["agent-8", "agent-9"]),
        "subject": st.sampled_from([SUBJECT, "u-ben", "u-eve"]),
        "task": st.just("nobody"),
        "operation": st.just("pay"),
    },
)

charges = st.fixed_dictionaries(
    {},
    optional={
        "USD.cent": st.sampled_from([0, 1, 1, 3, 20]),
        "publish": st.just(1),
        "token": st.sampled_from([0, 1]),
    },
)
outcomes = st.builds(
    Outcome,
    word=st.sampled_from(["succeeded", "succeeded", "failed", "no_effect", "nothing", "lost", "not_sent"]),
    charged=st.none() | charges | st.just({"USD.cent": 1.5}),
)


meanwhile = st.sampled_from(
    [
        *(("sinks_probed", word) for word in ("frozen", "above frozen", "closed", "lowered", "over", "same")),
        *(
            ("admission_acknowledged", word)
            for word in ("frozen", "above frozen", "closed", "late", "seen late")
        ),
        *(("answered", word) for word in ("frozen", "lowered", "late", "seen late")),
        *((point, "clock set back") for point in ("sinks_probed", "admission_acknowledged", "answered")),
    ]
)
"""Where a command stops, and what the other process does then (`Playing.meanwhile`)."""


def root(name: str, money: int, slots: int, expires: int) -> NewTask:
    """Return a root in which everything can be done for a while."""
    return NewTask(
        name=name,
        parent=None,
        budget={"USD.cent": money, "publish": 30, "token": 30},
        expires=expires,
        scope={"class": {"release": slots, "refund": slots}},
        actors=BOTH,
        subject=SUBJECT,
    )
