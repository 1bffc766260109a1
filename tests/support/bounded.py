"""Issuers with bounds of a test's own: through the profile where its ranges allow it, else on the open issuer."""

from dataclasses import replace
from pathlib import Path

from issuer import Issuer
from issuer.profile import LedgerBounds
from issuer.wire import Answer
from ledger.model import Holdings
from tests.support.cases import rebuilt
from tests.support.issuers import STANDARD_POLICY, Made, refund, standard_issuer

DENIES = """
@id("no-bad-orders") @say("Not that order.")
forbid (principal, action in Action::"permit", resource is Order) unless { !(resource.order like "bad*") };
"""
"""Denies what the budget would bear, by the owner's word alone."""


def bounded_issuer(folder: Path, *, port: int, **bounds: object) -> Made:
    """Make the standard issuer with a `[ledger]` of its own; orders that begin with `bad` are denied."""
    keys = "".join(f"{name} = {value!r}\n".replace("'", '"') for name, value in bounds.items())
    changes = {"[person]": f"[ledger]\n{keys}[person]"}
    return standard_issuer(folder, port=port, policy=STANDARD_POLICY + DENIES, changes=changes)


def with_bounds(issuer: Issuer, **bounds: int) -> Issuer:
    """Return the same open issuer under bounds that no profile may name; close the original only."""
    profile = issuer._house.profile
    fields = {**dict(profile.ledger), **bounds}
    return rebuilt(issuer, profile=replace(profile, ledger=LedgerBounds.model_construct(**fields)))


def holdings(issuer: Issuer) -> Holdings:
    """Return what the ledger holds."""
    return issuer._house.ledger.read(lambda view: view.holdings())


def denied(issuer: Issuer, number: int, *, task: str = "t1") -> Answer:
    """Ask for something that the policies deny."""
    answer = refund(issuer, order=f"bad-{number}", amount=1, task=task, request_key=f"bad-{task}-{number}")
    if answer.code != "denied":
        raise AssertionError(answer)
    return answer
