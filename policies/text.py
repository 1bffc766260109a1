r"""Is this text safe to hand to the Cedar engine, and where does each policy in it begin?

The engine has no depth limit of its own: a policy of 1.3 KB with some 660 nested brackets ends the process
on an 8 MB stack, and an `&&` chain of some 1,350 terms does so during conversion to a tree. Neither can be
caught, so text is measured here, by a scanner that never recurses, before the engine sees any of it.

Rules: bounded size, printable ASCII (a look-alike letter or a hidden direction mark may appear only as a
visible `\u{...}` escape), bounded nesting, bounded operators in one policy, no call of `unknown` (the
engine is built with partial evaluation: `unknown("x")` validates, and then makes a forbid be skipped).
The scanner ends a comment at `\r` as well as at `\n`, as Cedar does; otherwise brackets could hide there.

Not here: grammar. What this file lets through may still fail to parse, but cannot harm the process.
Next: `policies.engine` parses each `PolicyText` alone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from policies.findings import Finding

# 256 KiB is about a thousand ordinary policies; parsing that much takes tens of milliseconds.
BUNDLE_BYTES_MAX = 256 * 1024
# Hand-written policies stay under ten. A 512 KB stack survives 40, so 24 leaves room on any thread.
NESTING_MAX = 24
# The tree form allows 100 levels and the converter dies above some 1,350 on 8 MB; 400 is far below that.
OPERATORS_MAX = 400
# A list of a thousand names fits; a longer one belongs into a group, as it is compared in every decision.
TOKENS_MAX = 4_000
# One decision costs about 2 microseconds per policy whose scope matches: 500 keep it near a millisecond.
POLICIES_MAX = 500

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>//[^\r\n]*)
      | (?P<string>"(?:\\[^\n]|[^"\\])*")
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<end>;)
      | (?P<operator>&&|\|\||[-+*.!])
      | (?P<unterminated>")
      | (?P<other>[^"])""",
    re.VERBOSE,
)
_FORBIDDEN_CHARACTER = re.compile(r"[^\t\r\n\x20-\x7e]")
# `if` nests to the right without brackets, so it counts like an operator.
_NESTING_WORDS = frozenset({"if"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyText:
    """One policy as written: its text, where it starts, and where each of its annotations stands."""

    file: str
    line: int
    column: int
    text: str
    annotations_at: tuple[tuple[str, int, int], ...] = ()

    def finding(self, code: str, message: str, *, annotation: str = "") -> Finding:
        """Return an error at this policy, or at one of its annotations where that is named and present."""
        line, column = self.line, self.column
        for name, at_line, at_column in self.annotations_at:
            if name == annotation:
                line, column = at_line, at_column
                break
        return Finding(file=self.file, line=line, column=column, code=code, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    value: str
    start: int


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column of an offset, both from 1. Only a line feed ends a line here."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        yield _Token(kind=match.lastgroup or "other", value=match.group(), start=match.start())


def guard(file: str, text: str) -> tuple[Finding, ...]:
    """Return what makes `text` unfit to be parsed at all; an empty answer means the engine may see it.

    Source of the numbers: measurements on cedarpy 4.12.2, quoted at the constants.
    """
    if len(text) > BUNDLE_BYTES_MAX:
        message = f"larger than {BUNDLE_BYTES_MAX} bytes; split the bundle or shorten it"
        return (Finding(file=file, line=1, column=1, code="too_large", message=message),)
    bad = _FORBIDDEN_CHARACTER.search(text)
    if bad is not None:
        line, column = place(text, bad.start())
        message = (
            f"character U+{ord(bad.group()):04X}: only printable ASCII, tab and line ends are allowed, "
            "so that nothing looks like what it is not; write it as \\u{...} inside a string"
        )
        return (Finding(file=file, line=line, column=column, code="character", message=message),)
    trouble = _scan(text)
    if trouble is None:
        return ()
    offset, code, message = trouble
    line, column = place(text, offset)
    return (Finding(file=file, line=line, column=column, code=code, message=message),)


@dataclass(slots=True)
class _Meter:
    """Running measures of one text; `dangerous` says what is wrong at the token just counted."""

    depth: int = 0
    operators: int = 0
    tokens: int = 0
    previous: str = ""

    def count(self, token: _Token) -> None:
        self.depth += {"open": 1, "close": -1}.get(token.kind, 0)
        self.tokens += 1
        if token.kind == "end":
            self.operators = self.tokens = 0
        if token.kind in {"open", "operator"} or token.value in _NESTING_WORDS:
            self.operators += 1

    def dangerous(self, token: _Token) -> tuple[str, str] | None:
        if token.kind == "unterminated":
            return "string", "this string has no end"
        if self.depth < 0:
            return "bracket", "this bracket closes nothing"
        if self.depth > NESTING_MAX:
            return "too_deep", f"brackets nested deeper than {NESTING_MAX}"
        if self.operators > OPERATORS_MAX:
            return "too_long", f"more than {OPERATORS_MAX} operators in one policy; split it"
        if self.tokens > TOKENS_MAX:
            return (
                "too_long",
                f"more than {TOKENS_MAX} words and signs in one policy; split it, or use a group",
            )
        if token.value == "(" and self.previous == "unknown":
            return "unknown_call", "unknown(...) makes a rule be skipped and is not allowed"
        return None


def _scan(text: str) -> tuple[int, str, str] | None:
    """Walk the tokens once and return the first dangerous place, with its code and message."""
    meter = _Meter()
    for token in _tokens(text):
        if token.kind in {"space", "comment"}:
            continue
        meter.count(token)
        trouble = meter.dangerous(token)
        if trouble is not None:
            return (token.start, *trouble)
        meter.previous = token.value
    return None


def split(file: str, text: str) -> tuple[PolicyText, ...]:
    """Cut guarded text into its policies at each `;` outside strings and comments.

    What follows the last `;` is a policy of its own unless it is only space and comments: the engine then
    says that it is incomplete. The text of a policy begins at its first token, comments before it are left
    out, so its place is where an owner would look.
    """
    policies: list[PolicyText] = []
    pending: list[_Token] = []
    for token in _tokens(text):
        if token.kind in {"space", "comment"}:
            continue
        pending.append(token)
        if token.kind == "end":
            policies.append(_policy(file, text, pending))
            pending = []
    if pending:
        policies.append(_policy(file, text, pending))
    return tuple(policies)


def _policy(file: str, text: str, tokens: list[_Token]) -> PolicyText:
    first, last = tokens[0], tokens[-1]
    line, column = place(text, first.start)
    annotations = tuple(
        (name.value, *place(text, at.start))
        for at, name in itertools.pairwise(tokens)
        if at.value == "@" and name.kind == "word"
    )
    return PolicyText(
        file=file,
        line=line,
        column=column,
        text=text[first.start : last.start + len(last.value)],
        annotations_at=annotations,
    )
