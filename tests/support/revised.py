"""Activating what a test has written, and the one thing that holds of every trail: each span tells what was in force.

A file that is edited is a draft until it is activated, so a test that edits one says `activated(made.profile)`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from issuer import Issuer
from issuer.commands import activate
from issuer.wire import Answer
from ledger.canonical import parse_strict
from ledger.transitions import SpanRow


def activated(profile: Path, revision: str | None = None, **options: Any) -> str:
    """Put the files beside `profile` in force, where they are not; they must be good. Return the digest.

    `options` are those of `issuer.commands.activate`: the clock of a test that moves it, and adapters.
    """
    answer: Answer = activate(profile, revision, **options)
    if answer.code == "nothing_to_change":
        return ""
    if answer.code != "activated":
        raise AssertionError(f"not activated: {answer.code}: {answer.say}")
    return str(answer.more["revision"])


def rewritten(path: Path, text: str) -> None:
    """Write a file of the owner as an editor does: whole, under its own name. It is a draft until it is activated."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def spans_of(issuer: Issuer) -> list[dict[str, Any]]:
    """Return the attributes of every span of an issuer's trail, in order."""
    rows: list[SpanRow] = []
    while page := _page(issuer, rows[-1].position.sequence if rows else 0):
        rows += page
    return [attributes_of(row) for row in rows]


def _page(issuer: Issuer, after: int) -> Sequence[SpanRow]:
    return issuer._house.ledger.read(lambda view: view.spans_after(after, limit=1000))


def attributes_of(row: SpanRow) -> dict[str, Any]:
    """Return the attributes of one span."""
    body = parse_strict(row.body)
    assert isinstance(body, dict)
    attributes = body["attributes"]
    assert isinstance(attributes, dict)
    return attributes


def demand_one_revision(spans: Iterable[dict[str, Any]]) -> Sequence[str]:
    """Hold each span of a whole trail to the last activation before it; return what was in force, in order.

    What a policy decided was decided by the bundle of that revision, and by no other.
    """
    in_force: list[str] = []
    bundle: str | None = None
    for span in spans:
        told, now = span.get("permit.revision"), in_force[-1] if in_force else None
        if told is not None and told != now:
            raise AssertionError(
                f"span {span['permit.sequence']} ({span['permit.transition']}) tells {told}, and {now} was in force"
            )
        by = span.get("permit.bundle.digest", bundle)
        if span["permit.transition"] == "revision.activated":
            bundle = by
            if span.get("permit.revision.before") != now:
                raise AssertionError(f"span {span['permit.sequence']} replaces what was not in force")
            in_force.append(span["permit.revision.activated"])
        if in_force and by != bundle:
            raise AssertionError(
                f"span {span['permit.sequence']} was decided by policies that were not in force"
            )
    return in_force
