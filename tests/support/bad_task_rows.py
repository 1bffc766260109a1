"""Bad input about tasks, row by row, as `tests.support.bad_rows` has it about effects."""

from typing import Any, Final

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import AMOUNT_MAX, InstantMs
from ledger.scope import SLOTS_MAX
from tests.support.bad_rows import API, Row

HOUR_MS: Final = 3_600_000


def _open(
    what: str,
    code: str,
    field: str | None,
    *options: str,
    name: str = "fresh",
    parent: str | None = "t1",
    reason: str | None = None,
    api: bool = True,
    **changed: Any,
) -> Row:
    """Return a row of `task open`; `changed` is the same ask for the Python API."""
    keywords: dict[str, Any] = {"budget": {}, "parent": parent} | changed
    above = () if parent is None else ("--parent", parent)

    def call(issuer: Issuer, _effect: str) -> Answer:
        return issuer.task_open(name, **{"expires_ms": InstantMs(now_ms() + HOUR_MS)} | keywords)

    return Row(
        what=f"task open: {what}",
        cli=("task", "open", name, *above, *options),
        api=call if api else None,
        code=code,
        exit=2 if code in {"malformed", "unknown_reference"} else 7,
        field=field,
        reason=reason,
    )


def _budget(what: str, text: str, reason: str | None = None, **changed: Any) -> Row:
    """Return a row of a budget's text; the API cannot say what is wrong with text alone."""
    return _open(
        f"budget {what}", "malformed", None, "--budget", text, api=bool(changed), reason=reason, **changed
    )


TASKS: Final = (
    _budget("without an amount", "USD.cent"),
    _budget("with an empty amount", "USD.cent="),
    _budget("without a unit", "=5"),
    _budget("of a fraction", "USD.cent=1.5"),
    _budget("in digits of another script", "USD.cent=５"),  # noqa: RUF001 - a full-width digit on purpose
    _budget("with an exponent", "USD.cent=1e3"),
    _budget("with a blank", "USD.cent= 5"),
    _budget("of thirty digits", "USD.cent=" + "9" * 30),
    _open(
        "a negative budget",
        "malformed",
        "USD.cent",
        "--budget",
        "USD.cent=-5",
        reason="out_of_range",
        budget={"USD.cent": -5},
    ),
    _open(
        "a budget above every amount",
        "malformed",
        "USD.cent",
        "--budget",
        f"USD.cent={AMOUNT_MAX + 1}",
        reason="out_of_range",
        budget={"USD.cent": AMOUNT_MAX + 1},
    ),
    _open(
        "a unit that cannot be one",
        "malformed",
        "unit",
        "--budget",
        "USD cent=5",
        reason="wrong_type",
        budget={"USD cent": 5},
    ),
    _open(
        "a unit that nothing costs",
        "unknown_reference",
        "budget",
        "--budget",
        "EUR.cent=5",
        budget={"EUR.cent": 5},
    ),
    _open(
        "nothing to inherit from",
        "malformed",
        "budget",
        "--subject",
        "u-ana",
        "--actor",
        "agent-7",
        "--class",
        "refund=5",
        "--budget",
        "USD.cent=inherit",
        parent=None,
        reason="not_one_of",
        subject="u-ana",
        actors=["agent-7"],
        classes={"refund": 5},
        budget={"USD.cent": "inherit"},
    ),
    _open(
        "a ceiling above the parent's",
        "forbidden",
        "budget",
        "--budget",
        "USD.cent=1001",
        budget={"USD.cent": 1001},
    ),
    _open("a name with a space", "malformed", "task", name="a task", reason="not_a_name"),
    _open("a name with a control character", "malformed", "task", name="task\x07", reason="not_a_name"),
    _open("an empty name", "malformed", "task", name="", reason="not_a_name"),
    _open("a name that is taken", "name_taken", "task", name="t1"),
    _open("an unknown parent", "unknown_reference", "parent", parent="t9"),
    _open("a parent that is no text", "unknown_reference", "parent", parent="t\udcff"),
    _open("a name that is no text", "malformed", "task", name="t\udcff", reason="not_a_name"),
    _open("a closed parent", "task_closed", None, parent="done"),
    _open(
        "an actor that the parent lacks",
        "forbidden",
        "actor",
        "--actor",
        "agent-8",
        parent="t1.a",
        actors=["agent-8"],
    ),
    _open("an unknown actor", "unknown_reference", "actor", "--actor", "agent-9", actors=["agent-9"]),
    _open("an unknown subject", "unknown_reference", "subject", "--subject", "u-bob", subject="u-bob"),
    _open(
        "a root without a subject",
        "malformed",
        "subject",
        "--actor",
        "agent-7",
        "--class",
        "refund=5",
        parent=None,
        actors=["agent-7"],
        classes={"refund": 5},
    ),
    _open(
        "a root without an actor",
        "malformed",
        "actor",
        "--subject",
        "u-ana",
        "--class",
        "refund=5",
        parent=None,
        subject="u-ana",
        classes={"refund": 5},
    ),
    _open(
        "a root without a class",
        "malformed",
        "class",
        "--subject",
        "u-ana",
        "--actor",
        "agent-7",
        parent=None,
        reason="missing",
        subject="u-ana",
        actors=["agent-7"],
    ),
    _open("an expiry without an offset", "malformed", None, "--expires", "2030-01-01T00:00:00", api=False),
    _open("an expiry in words", "malformed", None, "--expires", "tomorrow", api=False),
    _open("an empty expiry", "malformed", None, "--expires", "", api=False),
    _open("no time at all", "malformed", None, "--expires", "0h", api=False),
    _open("a day that does not exist", "malformed", None, "--expires", "2030-02-30T00:00:00Z", api=False),
    _open(
        "an expiry before the first year",
        "malformed",
        None,
        "--expires",
        "0001-01-01T00:00:00+23:59",
        api=False,
    ),
    _open(
        "an expiry after the last year",
        "malformed",
        None,
        "--expires",
        "9999-12-31T23:59:59-23:59",
        api=False,
    ),
    _open(
        "an expiry that no calendar has",
        "malformed",
        "expires",
        "--subject",
        "u-ana",
        "--actor",
        "agent-7",
        "--class",
        "refund=5",
        "--expires",
        "9999999d",
        parent=None,
        subject="u-ana",
        actors=["agent-7"],
        classes={"refund": 5},
        reason="out_of_range",
        expires_ms=InstantMs(9_999_999 * 24 * HOUR_MS),
    ),
    _open(
        "an expiry that is over",
        "task_expired",
        None,
        "--expires",
        "2020-01-01T00:00:00Z",
        expires_ms=InstantMs(1),
    ),
)


def _scope(what: str, code: str, kind: str, text: str, reason: str | None = None, **changed: Any) -> Row:
    """Return a row of what a child of `t1` names; the API cannot say what is wrong with text alone."""
    field = kind if changed else None
    return _open(
        f"{kind} {what}", code, field, f"--{kind}", text, api=bool(changed), reason=reason, **changed
    )


SCOPES: Final = (
    _scope("without a count", "malformed", "class", "refund"),
    _scope("with an empty count", "malformed", "class", "refund="),
    _scope("without a name", "malformed", "class", "=5"),
    _scope("of a fraction", "malformed", "class", "refund=1.5"),
    _scope("that nobody declared", "unknown_reference", "class", "payment=5", classes={"payment": 5}),
    _scope("no times at all", "malformed", "class", "refund=0", "out_of_range", classes={"refund": 0}),
    _scope("less than no times", "malformed", "class", "refund=-1", "out_of_range", classes={"refund": -1}),
    _scope("more times than there are", "malformed", "class", f"refund={SLOTS_MAX + 1}", "out_of_range",
           classes={"refund": SLOTS_MAX + 1}),
    _scope("that nobody declared", "unknown_reference", "operation", "pay=1", operations={"pay": 1}),
    _scope("no times at all", "malformed", "operation", "refund=0", "out_of_range", operations={"refund": 0}),
    _scope("with a line end", "malformed", "resource", "Order:o\n1=1", "not_a_name",
           resources={"Order:o\n1": 1}),
    _scope("that reads backwards", "malformed", "resource", "Order:\u202eo=1", "not_a_name",
           resources={"Order:\u202eo": 1}),
    _scope("that is too long", "malformed", "resource", "Order:" + "o" * 640 + "=1", "not_a_name",
           resources={"Order:" + "o" * 640: 1}),
    _scope("of a type that nobody declared", "unknown_reference", "resource", "Ordre:o=1=1",
           resources={"Ordre:o=1": 1}),
    _scope("without a type", "unknown_reference", "resource", "o-1=1", resources={"o-1": 1}),
)  # fmt: skip


def _task(what: str, code: str, field: str | None, api: API, *cli: str, reason: str | None = None) -> Row:
    codes = {"malformed": 2, "unknown_reference": 2}
    return Row(what=f"task {what}", cli=("task", *cli), api=api, code=code, exit=codes.get(code, 7), field=field,
               reason=reason)  # fmt: skip


CHANGES: Final = (
    _task("show: unknown", "unknown_reference", "task", lambda i, _e: i.task_show("t9"), "show", "t9"),
    _task("show: a space", "unknown_reference", "task", lambda i, _e: i.task_show("t 1"), "show", "t 1"),
    _task("show: no text", "unknown_reference", "task", lambda i, _e: i.task_show("t\udcff"), "show", "t\udcff"),
    _task("close: no text", "unknown_reference", "task", lambda i, _e: i.task_close("\udcff"), "close", "\udcff"),
    _task("close: unknown", "unknown_reference", "task", lambda i, _e: i.task_close("t9"), "close", "t9"),
    _task("close: closed", "task_closed", None, lambda i, _e: i.task_close("done"), "close", "done"),
    _task("grant: closed", "task_closed", None, lambda i, _e: i.task_grant("done", budget={"USD.cent": 5}),
          "grant", "done", "--budget", "USD.cent=5"),
    _task("grant: nothing", "malformed", "budget", lambda i, _e: i.task_grant("t1", budget={"USD.cent": 0}),
          "grant", "t1", "--budget", "USD.cent=0", reason="out_of_range"),
    _task("grant: negative", "malformed", "USD.cent", lambda i, _e: i.task_grant("t1", budget={"USD.cent": -1}),
          "grant", "t1", "--budget", "USD.cent=-1", reason="out_of_range"),
    _task("grant: a unit that nothing costs", "unknown_reference", "budget",
          lambda i, _e: i.task_grant("t1", budget={"EUR.cent": 1}), "grant", "t1", "--budget", "EUR.cent=1"),
    _task("grant: above every amount", "malformed", "budget",
          lambda i, _e: i.task_grant("t1", budget={"USD.cent": AMOUNT_MAX}),
          "grant", "t1", "--budget", f"USD.cent={AMOUNT_MAX}"),
    _task("grant: to what inherits", "unsupported", "budget",
          lambda i, _e: i.task_grant("t1.b", budget={"USD.cent": 1}), "grant", "t1.b", "--budget", "USD.cent=1"),
    _task("grant: more than above it", "forbidden", "budget",
          lambda i, _e: i.task_grant("t1", budget={"USD.cent": 9_001}), "grant", "t1", "--budget", "USD.cent=9001"),
    _task("lower: closed", "task_closed", None, lambda i, _e: i.task_lower("done", budget={"USD.cent": 5}),
          "lower", "done", "--budget", "USD.cent=5"),
    _task("lower: unknown", "unknown_reference", "task", lambda i, _e: i.task_lower("t9", budget={"USD.cent": 5}),
          "lower", "t9", "--budget", "USD.cent=5"),
    _task("lower: negative", "malformed", "USD.cent", lambda i, _e: i.task_lower("t1", budget={"USD.cent": -1}),
          "lower", "t1", "--budget", "USD.cent=-1", reason="out_of_range"),
    _task("lower: a unit that nothing costs", "unknown_reference", "budget",
          lambda i, _e: i.task_lower("t1", budget={"EUR.cent": 1}), "lower", "t1", "--budget", "EUR.cent=1"),
    _task("lower: raises it", "malformed", "budget", lambda i, _e: i.task_lower("t1", budget={"USD.cent": 1_001}),
          "lower", "t1", "--budget", "USD.cent=1001"),
    _task("lower: more than above it", "forbidden", "budget",
          lambda i, _e: i.task_lower("t1.b", budget={"USD.cent": 1_001}), "lower", "t1.b", "--budget",
          "USD.cent=1001"),
    _task("freeze: unknown", "unknown_reference", "task", lambda i, _e: i.task_freeze("t9"), "freeze", "t9"),
    _task("freeze: closed", "task_closed", None, lambda i, _e: i.task_freeze("done"), "freeze", "done"),
    _task("thaw: unknown", "unknown_reference", "task", lambda i, _e: i.task_thaw("\udcff"), "thaw", "\udcff"),
    _task("thaw: closed", "task_closed", None, lambda i, _e: i.task_thaw("done"), "thaw", "done"),
    _task("thaw: not frozen", "nothing_to_change", None, lambda i, _e: i.task_thaw("t1"), "thaw", "t1"),
    _task("accept-overrun: unknown", "unknown_reference", "task", lambda i, _e: i.task_accept_overrun("t9"),
          "accept-overrun", "t9"),
    _task("accept-overrun: none", "nothing_to_change", "unit", lambda i, _e: i.task_accept_overrun("t1"),
          "accept-overrun", "t1"),
    _task("accept-overrun: no unit", "malformed", "unit",
          lambda i, _e: i.task_accept_overrun("t1", unit="no unit"), "accept-overrun", "t1", "--unit", "no unit",
          reason="wrong_type"),
)  # fmt: skip

TASK_ROWS: Final = (*TASKS, *SCOPES, *CHANGES)
