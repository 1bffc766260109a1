"""Bad input, row by row, as it is typed on the command line and as it is passed to the Python API.

`EFFECT` in a row stands for the reference of a permitted effect, on both surfaces.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import AMOUNT_MAX, InstantMs

EFFECT: Final = "EFFECT"
HOUR_MS: Final = 3_600_000
OTHER_EFFECT: Final = "eff_" + "0123456789abcdef" * 2
API = Callable[[Issuer, str], Answer]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One bad input and its answer. `api` is None where only text can be wrong in this way."""

    what: str
    cli: tuple[str, ...]
    stdin: bytes = b""
    api: API | None
    code: str
    exit: int
    field: str | None = None
    reason: str | None = None


def _request(what: str, document: bytes, reason: str, field: str | None = None) -> Row:
    return Row(
        what=f"payload: {what}",
        cli=("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-"),
        stdin=document,
        api=lambda issuer, _effect: issuer.request("refund", document, task="t1", actor="agent-7"),
        code="malformed",
        exit=2,
        field=field,
        reason=reason,
    )


def _amount(text: str) -> bytes:
    return b'{"order": "o-1", "amount": ' + text.encode() + b"}"


def _order(text: str) -> bytes:
    return b'{"order": "' + text.encode() + b'", "amount": 300}'


PAYLOADS: Final = (
    _request("empty", b"", "not_json"),
    _request("only blanks", b" \n\t ", "not_json"),
    _request("cut off", b'{"order": "o-1", "amount": 300', "not_json"),
    _request("two documents", _amount("300") + _amount("300"), "not_json"),
    _request("a byte order mark", b"\xef\xbb\xbf" + _amount("300"), "not_json"),
    _request("not UTF-8", b'{"order": "\xff", "amount": 300}', "not_utf8"),
    _request("UTF-16", _amount("300").decode().encode("utf-16"), "not_utf8"),
    _request("a repeated key", b'{"order": "o-1", "amount": 10, "amount": 900}', "duplicate_key"),
    _request(
        "a key repeated by an escape", b'{"order": "o-1", "amount": 10, "\\u0061mount": 900}', "duplicate_key"
    ),
    _request("NaN", _amount("NaN"), "not_json"),
    _request("Infinity", _amount("-Infinity"), "not_json"),
    _request("a fraction", _amount("300.5"), "number_not_whole"),
    _request("a whole float", _amount("300.0"), "number_not_whole"),
    _request("an exponent", _amount("3e2"), "number_not_whole"),
    _request("minus zero", _amount("-0"), "number_not_whole"),
    _request("a number that does not survive", _amount("9007199254740993"), "number_out_of_range"),
    _request("a number of a thousand digits", _amount("9" * 1000), "number_out_of_range"),
    _request("a negative amount", _amount("-300"), "out_of_range", "amount"),
    _request("nothing to pay", _amount("0"), "out_of_range", "amount"),
    _request("above the declared range", _amount("1000001"), "out_of_range", "amount"),
    _request("a number as text", _amount('"300"'), "wrong_type", "amount"),
    _request("true for a number", _amount("true"), "wrong_type", "amount"),
    _request("null", _amount("null"), "wrong_type", "amount"),
    _request("a list for a number", _amount("[300]"), "wrong_type", "amount"),
    _request("an undeclared field", b'{"order": "o-1", "amount": 300, "approved": true}', "undeclared_field"),
    _request("a missing field", b'{"order": "o-1"}', "missing_field", "amount"),
    _request("a field of other case", b'{"order": "o-1", "Amount": 300}', "missing_field", "amount"),
    _request("a lone surrogate", _order("\\ud800"), "lone_surrogate"),
    _request("a NUL", _order("\\u0000"), "nul_character"),
    _request("a control character", _order("\\u001b[31m"), "control_character", "order"),
    _request("a text that is too long", _order("o" * 41), "too_long", "order"),
    _request("a text too long in bytes", _order("é" * 21), "too_long", "order"),
    _request("too deep", b'{"order": ' + b"[" * 40 + b"]" * 40 + b', "amount": 300}', "too_deep"),
    _request("far too deep", b"[" * 100_000, "too_deep"),
    _request("just above the size", _order("o" * (128 * 1024)), "too_large"),
    _request("far above the size", b" " * (3 * 1024 * 1024) + _amount("300"), "too_large"),
    _request("a list", b'[{"order": "o-1", "amount": 300}]', "wrong_type"),
    _request("a text", b'"refund"', "wrong_type"),
)


def _ask(what: str, code: str, field: str, **changed: str) -> Row:
    names = {"operation": "refund", "task": "t1", "actor": "agent-7"} | changed
    operation = names.pop("operation")
    options = [part for name, value in names.items() for part in (f"--{name.replace('_', '-')}", value)]
    keywords: dict[str, Any] = dict(names)
    return Row(
        what=f"request: {what}",
        cli=("request", operation, *options, "--payload", "-"),
        stdin=_amount("300"),
        api=lambda issuer, _effect: issuer.request(operation, _amount("300"), **keywords),
        code=code,
        exit=2 if code in {"malformed", "unknown_reference"} else 7,
        field=field,
        reason="not_a_name" if code == "malformed" else None,
    )


NAMES: Final = (
    _ask("unknown operation", "unknown_reference", "operation", operation="refunds"),
    _ask("empty operation", "unknown_reference", "operation", operation=""),
    _ask("operation with a control character", "unknown_reference", "operation", operation="refund\n"),
    _ask("unknown task", "unknown_reference", "task", task="t9"),
    _ask("task with a space", "malformed", "task", task="t 1"),
    _ask("task with a control character", "malformed", "task", task="t1\n"),
    _ask("task that looks like another", "malformed", "task", task="tасk"),  # noqa: RUF001 - Cyrillic on purpose
    _ask("empty task", "malformed", "task", task=""),
    _ask("task that is too long", "malformed", "task", task="t" * 129),
    _ask("unknown actor", "unknown_reference", "actor", actor="agent-9"),
    _ask("actor with a control character", "unknown_reference", "actor", actor="agent-7\x1b"),
    _ask("actor outside the task", "forbidden", "actor", task="t1.a", actor="agent-8"),
    _ask("unknown subject", "unknown_reference", "subject", subject="u-bob"),
    _ask("request key with a space", "malformed", "request_key", request_key="a key"),
    _ask("request key with a control character", "malformed", "request_key", request_key="k\tk"),
    _ask("empty request key", "malformed", "request_key", request_key=""),
    _ask("task that is no text", "malformed", "task", task="t\udcff"),
    _ask("actor that is no text", "unknown_reference", "actor", actor="\udcff"),
    _ask("closed task", "task_closed", "", task="done"),
)

REFERENCES: Final[Mapping[str, str]] = {
    "a random id": OTHER_EFFECT,
    "a wrong shape": "eff_123",
    "another prefix": "tsk_" + OTHER_EFFECT[4:],
    "upper case": OTHER_EFFECT.upper(),
    "a line end": OTHER_EFFECT + "\n",
    "an empty text": "",
    "a path": "../../ledger",
}
COMMANDS: Final[Sequence[tuple[str, tuple[str, ...], tuple[str, ...], API]]] = (
    ("show", ("show",), (), lambda issuer, effect: issuer.show(effect)),
    ("commit", ("commit",), (), lambda issuer, effect: issuer.commit(effect)),
    ("dispatch", ("dispatch",), ("--", "true"), lambda issuer, effect: issuer.dispatch(effect, ["true"])),
    ("admit", ("admit",), (), lambda issuer, effect: issuer.admit(effect)),
    (
        "report",
        ("report",),
        ("--claim", "clm_1", "--outcome", "succeeded"),
        lambda issuer, effect: issuer.report(effect, "clm_1", succeeded=True),
    ),
    ("timeline", ("audit", "timeline"), (), lambda issuer, effect: issuer.timeline(effect)),
)


def _references() -> Iterator[Row]:
    """Every command with a random id, and every wrong shape with one command that reads and one that sends."""
    for name, command, rest, call in COMMANDS:
        for what, reference in REFERENCES.items():
            if what == "a random id" or name in {"show", "commit"}:
                yield Row(
                    what=f"{name}: {what}",
                    cli=(*command, reference, *rest),
                    api=lambda issuer, _effect, call=call, reference=reference: call(issuer, reference),  # type: ignore[misc]
                    code="not_found",
                    exit=2,
                )
    yield Row(
        what="request: a random id",
        cli=("request", OTHER_EFFECT),
        api=lambda issuer, _effect: issuer.request_held(OTHER_EFFECT),
        code="not_found",
        exit=2,
    )


def _commit(what: str, code: str, field: str | None, reason: str | None = None, **restated: Any) -> Row:
    payload = restated.get("payload")
    options = [
        part
        for name, value in restated.items()
        for part in (f"--{name}", "-" if name == "payload" else str(value))
    ]
    return Row(
        what=f"commit: {what}",
        cli=("commit", EFFECT, *options),
        stdin=payload if isinstance(payload, bytes) else b"",
        api=lambda issuer, effect: issuer.commit(effect, **restated),
        code=code,
        exit=2 if code == "malformed" else 7,
        field=field,
        reason=reason,
    )


RESTATED: Final = (
    _commit("another amount", "mismatch", "amount", payload=_amount("301")),
    _commit("another order", "mismatch", "order", payload=b'{"order": "o-2", "amount": 300}'),
    _commit("a repeated key", "malformed", None, "duplicate_key", payload=_amount('300, "amount": 300')),
    _commit("another task", "mismatch", "task", task="org"),
    _commit("another actor", "mismatch", "actor", actor="agent-8"),
    Row(
        what="dispatch: of what the issuer sends",
        cli=("dispatch", EFFECT, "--", "true"),
        api=lambda issuer, effect: issuer.dispatch(effect, ["true"]),
        code="unsupported",
        exit=7,
        field="dispatch",
    ),
    Row(
        what="admit: of what the issuer sends",
        cli=("admit", EFFECT),
        api=lambda issuer, effect: issuer.admit(effect),
        code="unsupported",
        exit=7,
        field="admit",
    ),
    Row(
        what="report: with a guessed claim",
        cli=("report", EFFECT, "--claim", "clm_0", "--outcome", "succeeded"),
        api=lambda issuer, effect: issuer.report(effect, "clm_0", succeeded=True),
        code="forbidden",
        exit=7,
        field="claim",
    ),
    Row(
        what="report: with a claim that is no text",
        cli=("report", EFFECT, "--claim", "\udcff", "--outcome", "succeeded"),
        api=lambda issuer, effect: issuer.report(effect, "\udcff", succeeded=True),
        code="forbidden",
        exit=7,
        field="claim",
    ),
    Row(
        what="list: an unknown state",
        cli=("list", "--state", "lost"),
        api=lambda issuer, _effect: issuer.list(["lost"]),
        code="malformed",
        exit=2,
        field="state",
        reason="not_one_of",
    ),
)


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
        "--budget",
        "USD.cent=inherit",
        parent=None,
        reason="not_one_of",
        subject="u-ana",
        actors=["agent-7"],
        budget={"USD.cent": "inherit"},
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
        parent=None,
        actors=["agent-7"],
    ),
    _open(
        "a root without an actor", "malformed", "actor", "--subject", "u-ana", parent=None, subject="u-ana"
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
        "--expires",
        "9999999d",
        parent=None,
        subject="u-ana",
        actors=["agent-7"],
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
)  # fmt: skip

ROWS: Final = (*PAYLOADS, *NAMES, *_references(), *RESTATED, *TASKS, *CHANGES)
