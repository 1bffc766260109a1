"""Rules of services: what is read from them, and what their answers are taken for (OPR-01).

Rules: a redirect proves nothing (REP-05); a charge is in a unit that the operation costs, and is not asked of an answer
that has no body; a read takes something; the entity tag that is sent belongs to the address it is sent to (EFF-07,
RFC 9110, section 13.1.1); an inspection asks for this effect and no other (REC-02), and asks a service. Pure.
`issuer/profile/rules_operations.py` yields these problems with its own.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import Inspect, Operation, Proves

__all__ = ["PROOFS", "service_problems"]

PROOFS: Final = ("succeeded", "failed", "no_effect", "accepted", "partial")
"""The keys of `proves` that list statuses."""

_COSTING: Final = ("succeeded", "failed", "partial")
_WITHOUT_BODY: Final = frozenset({204, 205})
_REDIRECTS: Final = 3


def service_problems(path: KeyPath, operation: Operation) -> Iterator[Problem]:
    """Yield every problem of what one operation asks of services."""
    if operation.proves is not None:
        yield from _status_problems((*path, "proves"), operation.proves)
        yield from _unit_problems((*path, "proves", "charged"), operation.proves.charged, operation)
    yield from _read_problems(path, operation)
    if operation.inspect is not None:
        yield from _inspect_problems((*path, "inspect"), operation, operation.inspect)
        yield from _unit_problems((*path, "inspect", "charged"), operation.inspect.charged, operation)


def _status_problems(path: KeyPath, proves: Proves) -> Iterator[Problem]:
    for key in PROOFS:
        statuses: tuple[int, ...] = getattr(proves, key)
        for index, status in enumerate(statuses):
            here = (*path, key, index)
            if status // 100 == _REDIRECTS:
                message = f"The status {status} is a redirect, which is not followed and proves nothing."
                yield Problem(path=here, code=FindingCode.BAD_VALUE, message=message)
            elif proves.charged and key in _COSTING and status in _WITHOUT_BODY:
                message = f"An answer {status} has no body, so no charge can be read from it."
                yield Problem(path=here, code=FindingCode.CONFLICT, message=message)


def _unit_problems(path: KeyPath, charged: Mapping[str, str], operation: Operation) -> Iterator[Problem]:
    for unit in charged:
        if unit not in operation.cost:
            message = f'The operation costs no "{unit}", so no charge is read in it.'
            known = tuple(operation.cost)
            yield Problem(
                path=(*path, unit),
                code=FindingCode.UNKNOWN_NAME,
                message=message,
                wanted=unit,
                candidates=known,
            )


def _read_problems(path: KeyPath, operation: Operation) -> Iterator[Problem]:
    before, http = operation.before, operation.http
    if before is None:
        return
    if not before.etag and not before.facts:
        message = "What is read is taken for nothing: etag = true, facts = { ... }, or both."
        yield Problem(path=(*path, "before"), code=FindingCode.MISSING_KEY, message=message)
    if any(place.is_effect_id for place in before.url.parsed.placeholders):
        # It has a finding of its own, which this one would bury.
        return
    if http is not None and http.if_match and before.etag and before.url.text != http.url.text:
        # Two resources may well have equal tags, so a foreign one could let a blind write through.
        message = "`if_match` sends the tag of `before.url`, which has to be the same address as `http.url`."
        yield Problem(path=(*path, "http", "if_match"), code=FindingCode.CONFLICT, message=message)


def _inspect_problems(path: KeyPath, operation: Operation, inspect: Inspect) -> Iterator[Problem]:
    if operation.file is not None:
        message = "`inspect` asks a service; what became of a file is seen in the file itself."
        yield Problem(path=path, code=FindingCode.CONFLICT, message=message)
    templates = (inspect.url, *(() if inspect.equals is None else (inspect.equals,)))
    if not any(template.parsed.placeholders for template in templates):
        message = (
            "Nothing here names the effect, so any other would be found as well: "
            "use a field or {effect_id} in `url` or `equals`."
        )
        yield Problem(path=(*path, "url"), code=FindingCode.CONFLICT, message=message)
    elif inspect.charged and not _names_the_effect(inspect):
        message = (
            "A charge settles less than the maximum, so what is found has to be this effect for certain: compare "
            "`{effect_id}` in `equals`, or ask for `{effect_id}` in `url` with a `found` that picks none of a list."
        )
        yield Problem(path=(*path, "charged"), code=FindingCode.CONFLICT, message=message)


def _names_the_effect(inspect: Inspect) -> bool:
    """Say whether an inspection finds this effect only: it compares the id, or asks for it and takes what it gets."""
    if inspect.equals is not None and any(place.is_effect_id for place in inspect.equals.parsed.placeholders):
        return True
    picks = any(part.isdigit() for part in inspect.found.split("/"))
    return not picks and any(place.is_effect_id for place in inspect.url.parsed.placeholders)
