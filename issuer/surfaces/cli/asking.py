"""`request` on the command line: an operation with its options, or the reference of a held effect."""

import click

from issuer.api import Issuer
from issuer.wire import Answer
from ledger.model import EFFECT_ID_PATTERN


def run_request(
    issuer: Issuer,
    what: str,
    *,
    task: str | None,
    actor: str | None,
    subject: str | None,
    payload: bytes | None,
    request_key: str | None,
    invocation: str | None,
    wait: str | None,
    hold: bool,
) -> Answer:
    """Request an operation, or take a held effect further."""
    if wait is not None:
        say = "Not supported yet: --wait, since approvals come in a later release."
        return Answer(
            issuer=issuer.name, code="unsupported", mode=issuer.mode, say=say, more={"field": "wait"}
        )
    if EFFECT_ID_PATTERN.match(what):
        given = [task, actor, subject, payload, request_key, invocation]
        if hold or any(option is not None for option in given):
            raise click.UsageError("A held effect is taken further as it was prepared: give no other option.")
        return issuer.request_held(what)
    if task is None or actor is None or payload is None:
        raise click.UsageError("A request needs --task, --actor and --payload.")
    return issuer.request(
        what,
        payload,
        task=task,
        actor=actor,
        subject=subject,
        request_key=request_key,
        invocation=invocation,
        hold=hold,
    )
