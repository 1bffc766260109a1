"""`request` on the command line: an operation with its options, or the reference of a held effect."""

import click

from issuer.api import Issuer
from issuer.surfaces.cli.options import duration_ms
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
    for_ms = None if wait is None else duration_ms(wait, "--wait")
    if for_ms is not None and hold:
        raise click.UsageError("What is held waits for nobody: give --hold or --wait.")
    if EFFECT_ID_PATTERN.match(what):
        given = [task, actor, subject, payload, request_key, invocation]
        if hold or any(option is not None for option in given):
            raise click.UsageError("A held effect is taken further as it was prepared: give no other option.")
        return _waited(issuer, issuer.request_held(what), for_ms)
    if task is None or actor is None or payload is None:
        raise click.UsageError("A request needs --task, --actor and --payload.")
    asked = issuer.request(
        what,
        payload,
        task=task,
        actor=actor,
        subject=subject,
        request_key=request_key,
        invocation=invocation,
        hold=hold,
    )
    return _waited(issuer, asked, for_ms)


def _waited(issuer: Issuer, asked: Answer, for_ms: int | None) -> Answer:
    """Wait until people have answered, where that is wanted and there is something to wait for."""
    if for_ms is None or asked.code != "awaiting_approval" or asked.effect is None:
        return asked
    # Whoever is interrupted while waiting finds it again under its id: waiting holds nothing.
    click.echo(f"{asked.effect} waits for people until {asked.expires}. {asked.say}", err=True)
    return issuer.wait(asked.effect, for_ms=for_ms)
