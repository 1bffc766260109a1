"""The last look at what a span would keep for ever: secrets, and texts that do not belong.

Rules: SEC-01. A trail cannot be erased, so a value that looks like a credential must not enter it.

1. Before anything was sent, a secret refuses the span, and with it the transition: the caller can try again
   without it.
2. In an outcome the thing has happened. Refusing would lose the truth, so the value alone is replaced by
   `[redacted:rule]`; likewise a text of the outside world that does not have the form of its attribute.

Patterns find the usual credentials, and what looks drawn at random; not all of them: the closed vocabulary is the first
line, this the next. What is random by nature (digests, fingerprints, the reference of a service) is not looked through
for randomness.
Next: `audit.recorder`.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from audit.vocabulary import ATTRIBUTES, OUTCOMES, fits
from ledger.errors import SpanNotRecorded
from ledger.transitions import AttributeValue, Transition

__all__ = ["SECRETS", "without_secrets"]

_NAMED: Final = "(?:[0-9]{1,8}|[A-Z]?[a-z]{1,24})(?:-(?:[0-9]{1,8}|[A-Z]?[a-z]{1,24})){0,4}"

SECRETS: Final[tuple[tuple[str, str], ...]] = (
    # Prefixed API keys. A capital or digit is asked for, since `sk-learn-utils` names a package,
    # and what is made of words and numbers alone is somebody's own name for something.
    (
        "api_key",
        rf"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]*[0-9A-Z])(?!{_NAMED}(?![A-Za-z0-9_-]))[A-Za-z0-9_-]{{8,}}",
    ),
    (
        "code_host_token",
        r"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|gl(?:pat|rt|dt|ptt)-[A-Za-z0-9_-]{16,})",
    ),
    # Tokens of package registries, payment services and chats, by the prefixes that they document.
    ("registry_token", r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36}|pypi-AgEI[A-Za-z0-9_-]{16,})"),
    (
        "service_key",
        (
            r"(?<![A-Za-z0-9])(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|AIza[A-Za-z0-9_-]{35}|whsec_[A-Za-z0-9+/]{24,}"
            r"|GOCSPX-[A-Za-z0-9_-]{24,}|hf_[A-Za-z]{30,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"
            r"|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|do[opr]_v1_[0-9a-f]{64}|AGE-SECRET-KEY-1[0-9A-Z]{40,})"
        ),
    ),
    ("chat_token", r"(?<![A-Za-z0-9])(?:xox[abeprs]|xapp)-(?=[A-Za-z-]{0,64}[0-9])[A-Za-z0-9-]{10,}"),
    ("bot_token", r"(?<![A-Za-z0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    # Our own: a host's or an actor's, and the claim of an admission.
    ("issuer_token", r"(?<![A-Za-z0-9])pit_(?:host|actor)_[a-z0-9_-]{1,64}_[A-Za-z0-9_-]{43}"),
    ("issuer_claim", r"(?<![A-Za-z0-9])clm_[0-9a-f]{32}"),
    ("cloud_key", r"(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    # Base64url of `{"`: the head of a JSON web token.
    ("web_token", r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}"),
    ("pem", r"-----BEGIN [A-Z ]{1,40}-----"),
    # A word may follow in a name, such as "the bearer certificate"; a token has a digit, or is longer than any word.
    ("bearer", r"(?i:(?<![a-z0-9])bearer[ =:]+(?=[a-z._~+/-]{0,64}[0-9]|[a-z._~+/-]{24})[a-z0-9._~+/-]{8,})"),
    ("url_password", r"(?i:[a-z][a-z0-9+.-]{1,20}://[^/@\s:]{0,64}:[^/@\s]{1,128}@)"),
)
"""Name and pattern of each rule; every repetition before a literal is bounded, so a search is linear."""

_ANY_SECRET: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in SECRETS))

_TRIGGERS: Final = (
    *("sk-", "akia", "asia", "eyj", "-----begin", "bearer", "://"),
    *("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "glrt-", "gldt-", "glptt-"),
    *("whsec_", "gocspx-", "hf_", "shpat_", "shpca_", "shppa_", "shpss_", "sq0atp-", "sq0csp-"),
    *("doo_v1_", "dop_v1_", "dor_v1_", "age-secret-key-1", "xapp-", ":aa"),
    *("npm_", "pypi-", "sk_live_", "rk_live_", "sk_test_", "rk_test_", "aiza"),
    *("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "pit_", "clm_"),
)
"""One of these, in lower case, is part of whatever a rule finds; most spans hold none and need no search."""

_MISFIT: Final = "form"
_RANDOM: Final = "random"

RANDOM_LENGTH_MIN: Final = 40
"""Characters without a break from which on a text may be a bare key: 240 bits, as keys of clouds have."""

_LONG: Final = re.compile(rf"[A-Za-z0-9+=_-]{{{RANDOM_LENGTH_MIN},}}")
"""Neither slash nor dot: a path or a version is made of words, however long."""

_LONG_PATH: Final = re.compile(rf"[A-Za-z0-9+=_/-]{{{RANDOM_LENGTH_MIN},}}")
"""With slashes, of which Base64 has one in 64 characters: half of all keys of that length have one."""

_DIGEST: Final = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}|0x[0-9a-fA-F]{40,}")
"""Digests and addresses, which are no keys however they are named."""

_PIECE: Final = re.compile(r"[A-Za-z0-9]{10}")
"""Numbers of orders, drafts and parts are long as well, and made of short pieces."""

_CHANGES_IN_PATH_MIN: Final = 0.5
"""As `_CHANGES_MIN`, where slashes are: folders are often called by short numbers."""

_ENTROPY_MIN: Final = 4.3
"""Bits a character, of the characters as they are distributed; 40 random ones of Base64 have 4.9, of hex at most 4."""

_CHANGES_MIN: Final = 0.4
"""Neighbours that are of different kinds (small, capital, digit): 0.65 where random, below 0.3 where made of words."""

_SAMPLE: Final = "qT7xB2mK9vR4wZ1nC6yL8pD3sF5hJ0gA" + "eU2iO9aX4kM"
_WRAPPED: Final = ("{}", "class:{}=1", "resource:{}=1", "{}=1", "{}:reason", "person:{}", "{}:USD.cent=1")
_BY_NATURE: Final = frozenset({"permit.reference", "permit.key.fingerprint", "permit.stop"})
"""What is drawn at random on purpose, or needed as it was given (EFF-09): a stop names a key by its fingerprint."""

_MAY_BE_RANDOM: Final = frozenset(
    name
    for name, attribute in ATTRIBUTES.items()
    if name not in _BY_NATURE
    and any(
        fits(name, (text,) if attribute.kind == "texts" else text)
        for text in (form.format(_SAMPLE) for form in _WRAPPED)
    )
)
"""Attributes whose form has room for a bare key: neither numbers, nor digests, nor words of a list."""


def without_secrets(
    transition: Transition, *, among: Mapping[str, AttributeValue] | None = None
) -> Transition:
    """Return the transition as it may be recorded: the same object where nothing was found.

    Args:
        transition: what happened.
        among: those of its attributes that were not looked through before (`audit.known`); None for all.

    Raises:
        SpanNotRecorded: `secret_in_span`, naming the attribute and the rule, where nothing was sent yet.
    """
    replaced: dict[str, AttributeValue] = {}
    is_outcome = transition.name in OUTCOMES
    looked_at = transition.attributes if among is None else among
    if not is_outcome and not _may_hold_secret(looked_at):
        return transition
    for name, value in looked_at.items():
        cleaned = _cleaned(name, value, is_outcome=is_outcome)
        if cleaned is not value:
            replaced[name] = cleaned
    if not replaced:
        return transition
    return replace(transition, attributes={**transition.attributes, **replaced})


def _may_hold_secret(attributes: Mapping[str, AttributeValue]) -> bool:
    """Say whether any text of the attributes holds what every secret begins with, or is long enough to be a key."""
    texts: list[str] = []
    for name, value in attributes.items():
        several = (value,) if type(value) is str else value if isinstance(value, tuple) else ()
        for text in several:
            if type(text) is not str:
                continue
            texts.append(text)
            if len(text) >= RANDOM_LENGTH_MIN and name in _MAY_BE_RANDOM and _LONG_PATH.search(text):
                return True
    if not texts:
        return False
    together = "\n".join(texts).lower()
    for trigger in _TRIGGERS:  # noqa: SIM110 - a generator would take twice as long, at every span
        if trigger in together:
            return True
    return False


def _looks_random(text: str) -> bool:
    """Say whether a text holds what nobody would have named so: long, without words, of every kind of character."""
    return any(_is_drawn(run, _CHANGES_MIN) for run in _LONG.findall(text)) or any(
        _is_drawn(run, _CHANGES_IN_PATH_MIN) for run in _LONG_PATH.findall(text)
    )


def _is_drawn(run: str, changes_min: float) -> bool:
    run = _DIGEST.sub("", run)
    return (
        len(run) >= RANDOM_LENGTH_MIN
        and all(any(map(kind, run)) for kind in (str.isdigit, str.isupper, str.islower))
        and _PIECE.search(run) is not None
        and _entropy(run) >= _ENTROPY_MIN
        and _changes(run) >= changes_min
    )


def _entropy(text: str) -> float:
    """Return Shannon's entropy of the characters of a text, in bits a character."""
    length = len(text)
    return -sum(times / length * math.log2(times / length) for times in Counter(text).values())


def _changes(text: str) -> float:
    """Return how many of all neighbouring letters and digits are of different kinds, 0 to 1."""
    kinds = [
        "d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else "" for char in text
    ]
    pairs = [(one, two) for one, two in pairwise(kinds) if one and two]
    return sum(one != two for one, two in pairs) / max(1, len(pairs))


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
    rule = found.lastgroup if found else _RANDOM if name in _MAY_BE_RANDOM and _looks_random(text) else None
    if rule is not None:
        if not is_outcome:
            shown = name if name in ATTRIBUTES else "An attribute"
            raise SpanNotRecorded("secret_in_span", f"{shown} holds what looks like a secret ({rule}).")
        return f"[redacted:{rule}]"
    if is_outcome and name in ATTRIBUTES:
        attribute = ATTRIBUTES[name]
        kind_fits = attribute.kind == ("texts" if isinstance(member, tuple) else "text")
        if kind_fits and not fits(name, member, allows_redacted=True):
            return f"[redacted:{_MISFIT}]"
    return text
