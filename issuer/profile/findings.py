"""What the reader of a profile says no with: every problem at once, each with its place and one sentence.

Rules: a finding names file, line and column (both from 1, in characters), the dotted key, a stable code and
one sentence; for a name or key that does not exist it adds the nearest one that does. An owner reads these,
so keys and names of the profile may be repeated; values of registry cells never are (SEC-01).

This module knows neither TOML nor the models. `issuer/profile/positions.py` comes next.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from issuer.likeness import did_you_mean
from issuer.profile.limits import FINDINGS_MAX

__all__ = ["Finding", "FindingCode", "KeyPath", "Problem", "ProfileRefused", "Unread", "dotted"]

KeyPath = tuple[str | int, ...]
"""Where a value stands in the parsed document: table keys and list indexes from the root."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class FindingCode(StrEnum):
    """The stable codes of findings, grouped by what has to be repaired."""

    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    SYNTAX = "syntax"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "too_deep"
    CONTROL_CHARACTER = "control_character"
    MISSING_KEY = "missing_key"
    UNKNOWN_KEY = "unknown_key"
    WRONG_TYPE = "wrong_type"
    BAD_NAME = "bad_name"
    BAD_VALUE = "bad_value"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN_NAME = "unknown_name"
    DUPLICATE_VALUE = "duplicate_value"
    DUPLICATE_LOGIN = "duplicate_login"
    NO_REQUIRED_SINK = "no_required_sink"
    MISSING_BOUND = "missing_bound"
    IMPOSSIBLE_BOUND = "impossible_bound"
    UNBOUNDED_COST = "unbounded_cost"
    NOT_EXACTLY_ONE = "not_exactly_one"
    CONFLICT = "conflict"
    BAD_TEMPLATE = "bad_template"
    UNKNOWN_PLACEHOLDER = "unknown_placeholder"
    SECRET_EXPOSED = "secret_exposed"  # noqa: S105  # a code, not a credential
    BAD_DESTINATION = "bad_destination"
    BAD_REGISTRY = "bad_registry"
    BAD_KEY = "bad_key"
    MORE_FINDINGS = "more_findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of one file.

    `line` and `column` count from 1, the column in characters; where a key is missing they are those of the
    table that lacks it. `key` is the dotted key, empty for the file as a whole.
    """

    where: str
    line: int
    column: int
    key: str
    code: FindingCode
    message: str

    def __str__(self) -> str:
        """Return the one line that a person reads: `file:line:column: key: sentence [code]`."""
        key = f"{self.key}: " if self.key else ""
        return f"{self.where}:{self.line}:{self.column}: {key}{self.message} [{self.code}]"


class ProfileRefused(Exception):  # noqa: N818  # a refusal is not an error of ours, and its name says so
    """The owner's profile cannot be used; whose fault: the profile's. Nothing was loaded."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        """Keep the findings (at least one, in the order of the files)."""
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class Unread(Exception):  # noqa: N818  # becomes a finding within this package
    """A file has no usable text."""

    def __init__(self, code: FindingCode, message: str) -> None:
        """Keep the finding's code and sentence."""
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding that does not know its line yet: where in the document, what, and what may have been meant.

    `wanted` and `candidates` are kept apart from the sentence, so that the costly comparison is made only
    for the findings that are shown.
    """

    path: KeyPath
    code: FindingCode
    message: str
    wanted: str | None = None
    candidates: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the message with "did you mean" appended where a near name exists."""
        return f"{self.message} {did_you_mean(self.wanted, self.candidates)}".rstrip()


def dotted(path: KeyPath) -> str:
    """Return the path as TOML writes it: dots, quotes where a key needs them, `[n]` for list indexes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if _BARE_KEY.fullmatch(part) else '"' + ascii(part)[1:-1].replace('"', '\\"') + '"'
        text += f".{shown}" if text else shown
    return text


def bounded(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return at most `FINDINGS_MAX` findings, with a last line that says how many were left out."""
    if len(findings) <= FINDINGS_MAX:
        return tuple(findings)
    last = findings[FINDINGS_MAX]
    rest = len(findings) - FINDINGS_MAX
    more = Finding(
        where=last.where,
        line=last.line,
        column=last.column,
        key="",
        code=FindingCode.MORE_FINDINGS,
        message=f"{rest} more findings are not shown; repair these first.",
    )
    return (*findings[:FINDINGS_MAX], more)
