"""Bad input, row by row, as it is typed on the command line and as it is passed to the Python API.

`EFFECT` in a row stands for the reference of a permitted effect, on both surfaces.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from issuer import Issuer
from issuer.wire import Answer

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


EFFECT_ROWS: Final = (*PAYLOADS, *NAMES, *_references(), *RESTATED)
