"""The last look at what a span would keep for ever: secrets, and texts that do not belong.

Rules: SEC-01. A trail cannot be erased, so a value that looks like a credential must not enter it.

1. Before anything was sent, a secret refuses the span, and with it the transition: the caller can try again
   without it.
2. In an outcome the thing has happened. Refusing would lose the truth, so the value alone is replaced by
   `[redacted:rule]`; likewise a text of the outside world that does not have the form of its attribute.

Patterns find the usual credentials, not all of them: the closed vocabulary is the first line, this the next.
Next: `audit.recorder`.
"""

import re
from dataclasses import replace
from typing import Final

from audit.vocabulary import ATTRIBUTES, OUTCOMES, fits
from ledger.errors import SpanNotRecorded
from ledger.transitions import AttributeValue, Transition

__all__ = ["SECRETS", "without_secrets"]

SECRETS: Final[tuple[tuple[str, str], ...]] = (
    # Prefixed API keys. A capital or digit is asked for, since `sk-learn-utils` names a package.
    ("api_key", r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]*[0-9A-Z])[A-Za-z0-9_-]{8,}"),
    ("code_host_token", r"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})"),
    ("cloud_key", r"(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{12,}"),
    # Base64url of `{"`: the head of a JSON web token.
    ("web_token", r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}"),
    ("pem", r"-----BEGIN [A-Z ]{1,40}-----"),
    ("bearer", r"(?i:(?<![a-z0-9])bearer[ =:]+[a-z0-9._~+/-]{8,})"),
    ("url_password", r"[a-z][a-z0-9+.-]{1,20}://[^/@\s:]{0,64}:[^/@\s]{1,128}@"),
)
"""Name and pattern of each rule; every repetition before a literal is bounded, so a search is linear."""

_ANY_SECRET: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in SECRETS))

_TRIGGERS: Final = (
    *("sk-", "akia", "asia", "eyj", "-----begin", "bearer", "://"),
    *("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"),
)
"""One of these, in lower case, is part of whatever a rule finds; most spans hold none and need no search."""

_MISFIT: Final = "form"


def without_secrets(transition: Transition) -> Transition:
    """Return the transition as it may be recorded: the same object where nothing was found.

    Raises:
        SpanNotRecorded: `secret_in_span`, naming the attribute and the rule, where nothing was sent yet.
    """
    replaced: dict[str, AttributeValue] = {}
    is_outcome = transition.name in OUTCOMES
    if not is_outcome and not _may_hold_secret(transition):
        return transition
    for name, value in transition.attributes.items():
        cleaned = _cleaned(name, value, is_outcome=is_outcome)
        if cleaned is not value:
            replaced[name] = cleaned
    if not replaced:
        return transition
    return replace(transition, attributes={**transition.attributes, **replaced})


def _may_hold_secret(transition: Transition) -> bool:
    """Say whether any text of the transition holds what every secret begins with."""
    texts = [value for value in transition.attributes.values() if isinstance(value, str)]
    for value in transition.attributes.values():
        if isinstance(value, tuple):
            texts.extend(item for item in value if type(item) is str)
    together = "\n".join(texts).lower()
    return any(trigger in together for trigger in _TRIGGERS)


def _cleaned(name: str, value: AttributeValue, *, is_outcome: bool) -> AttributeValue:
    """Return the value itself, or its redacted form in an outcome; refuse a secret elsewhere."""
    if isinstance(value, str):
        return _cleaned_text(name, value, member=value, is_outcome=is_outcome)
    if isinstance(value, tuple):
        items = tuple(_cleaned_text(name, item, member=(item,), is_outcome=is_outcome) for item in value)
        return value if items == value else items
    return value


def _cleaned_text(name: str, text: str, *, member: AttributeValue, is_outcome: bool) -> str:
    if type(text) is not str:
        # Whatever else it is, the vocabulary refuses it.
        return text
    found = _ANY_SECRET.search(text)
    if found is not None:
        if not is_outcome:
            shown = name if name in ATTRIBUTES else "An attribute"
            raise SpanNotRecorded(
                "secret_in_span", f"{shown} holds what looks like a secret ({found.lastgroup})."
            )
        return f"[redacted:{found.lastgroup}]"
    if is_outcome and name in ATTRIBUTES:
        attribute = ATTRIBUTES[name]
        kind_fits = attribute.kind == ("texts" if isinstance(member, tuple) else "text")
        if kind_fits and not fits(name, member, allows_redacted=True):
            return f"[redacted:{_MISFIT}]"
    return text
