"""The part of a check that holds rulings, waits and approvals against what the trail tells of them.

Rules: LED-06 (each row carries a MAC, and an earlier ruling is authentic as well, so each is held against the last span
about its name), POL-07, ADM-05 (a ruling says what its own span says), APP-01 (a permit by approval rests on
approvals, each told with its signer and key). Of a credential the trail tells only where its ruling was made, since
no span says a token's hash; of a challenge it tells nothing. Who may approve is not judged: policies say that.
Next: `ledger.sqlite.check_trail` keeps what spans tell by `AUTHORITY_TOLD`; `ledger.sqlite.check_standing` holds the
rulings against the register.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ledger.authority import (
    ACTIVE_REVISION,
    SINKS_CHANGED,
    RulingKind,
    Stop,
    StopKind,
    quarantine_name,
    ruling_id,
)
from ledger.model import Tier
from ledger.port import SpanColumns
from ledger.sqlite.authority_rows import (
    APPROVAL_COLUMNS,
    RULING_COLUMNS,
    WAIT_COLUMNS,
    Row,
    approval_authority,
    approval_from,
    ruling_authority,
    ruling_from,
    wait_authority,
    wait_from,
)
from ledger.sqlite.check_ground import (
    UNREADABLE,
    ApprovalTold,
    Ground,
    RulingTold,
    Said,
    Trail,
    WaitTold,
    Where,
    amounts_said,
)
from ledger.standing import bucket_of
from ledger.transitions import TransitionName

_STOPPED: Final = {
    TransitionName.STOP_FROZEN.value: Stop.FROZEN.value,
    TransitionName.STOP_THAWED.value: Stop.OPEN.value,
    TransitionName.STOP_REVOKED.value: Stop.REVOKED.value,
}
_STOPS: Final = frozenset(kind.value for kind in StopKind)


def _activated(trail: Trail, row: SpanColumns, said: Said) -> None:
    told = said.get("permit.revision.activated")
    trail.rulings[RulingKind.REVISION.value, ACTIVE_REVISION] = RulingTold(row.sequence, _text(told))


def _stopped(trail: Trail, row: SpanColumns, said: Said) -> None:
    stop = _text(said.get("permit.stop"))
    if stop is None:
        return
    kind, _colon, name = stop.partition(":")
    if kind == RulingKind.KEY.value:
        trail.rulings[kind, name] = RulingTold(row.sequence, _STOPPED[row.name])
    elif kind in _STOPS:  # a task, an effect and a permit have states of their own, and no ruling
        trail.rulings[RulingKind.STOP.value, stop] = RulingTold(row.sequence, _STOPPED[row.name])


def _credential(trail: Trail, row: SpanColumns, said: Said) -> None:
    whose = _text(said.get("permit.credential"))
    if whose is not None:
        trail.rulings[RulingKind.TOKEN.value, whose] = RulingTold(row.sequence, None)


def _sink_registered(trail: Trail, row: SpanColumns, said: Said) -> None:
    if "permit.reason" in said:  # gained since: a ruling places it
        _sink_placed(trail, row, said)
    else:
        trail.sinks.add(row.sequence)


def _sink_placed(trail: Trail, row: SpanColumns, said: Said) -> None:
    name = _text(said.get("permit.sink.name"))
    if name is not None:
        trail.rulings[RulingKind.SINK.value, name] = RulingTold(row.sequence, None)
        trail.rulings[RulingKind.SINK.value, SINKS_CHANGED] = RulingTold(row.sequence, None)


def _sink_quarantined(trail: Trail, row: SpanColumns, said: Said) -> None:
    name, first = _text(said.get("permit.sink.name")), said.get("permit.sink.from")
    if name is not None and type(first) is int:
        told = RulingTold(row.sequence, str(said.get("permit.sink.upto")))
        trail.rulings[RulingKind.QUARANTINE.value, quarantine_name(name, first)] = told
        trail.rulings[RulingKind.SINK.value, SINKS_CHANGED] = RulingTold(row.sequence, None)


def _asked(trail: Trail, row: SpanColumns, said: Said) -> None:
    digest = _text(said.get("permit.statement.digest"))
    if (
        digest is not None
    ):  # before schema 4 an effect waited for nobody in particular, and its span names no statement
        approvers = amounts_said(said, "permit.approvers")
        trail.waits[row.story] = WaitTold(row.sequence, digest, approvers)


def _approved(trail: Trail, row: SpanColumns, said: Said) -> None:
    signer, key = _text(said.get("permit.signer")), _text(said.get("permit.key.fingerprint"))
    trail.approvals[row.sequence] = ApprovalTold(row.story, signer, key, row.at_ms)


def _text(told: object) -> str | None:
    return told if isinstance(told, str) else None


AUTHORITY_TOLD: Final[Mapping[str, Callable[[Trail, SpanColumns, Said], None]]] = {
    TransitionName.REVISION_ACTIVATED.value: _activated,
    **dict.fromkeys(_STOPPED, _stopped),
    TransitionName.CREDENTIAL_ISSUED.value: _credential,
    TransitionName.CREDENTIAL_REVOKED.value: _credential,
    TransitionName.SINK_REGISTERED.value: _sink_registered,
    TransitionName.SINK_REPLACED.value: _sink_placed,
    TransitionName.SINK_QUARANTINED.value: _sink_quarantined,
    TransitionName.EFFECT_AWAITING_APPROVAL.value: _asked,
    TransitionName.EFFECT_APPROVED.value: _approved,
}
"""What is kept of a span that gives or takes authority, by its name; the bodies of all of them are read."""


def check_authority(ground: Ground) -> None:
    """Check every ruling, wait and approval, and that permits by approval rest on some."""
    _check_rulings(ground)
    _check_waits(ground)
    _check_approvals(ground)
    sql = (
        "SELECT effect_id FROM permits AS p WHERE tier = ? AND NOT EXISTS ("
        "SELECT 1 FROM approvals AS a WHERE a.effect_id = p.effect_id) ORDER BY effect_id"
    )
    for (effect_id,) in ground.raw.execute(sql, (Tier.APPROVAL.value,)):
        says = "The permit was issued by approval, and nobody approved the effect."
        ground.find("permit_without_approval", ("permits", effect_id), says)


def _check_rulings(ground: Ground) -> None:
    found: set[tuple[str, str]] = set()
    sql = f"SELECT {RULING_COLUMNS}, ruling_id, bucket, sequence, mac FROM rulings ORDER BY kind, name"
    for row in ground.raw.execute(sql):
        found.add((row[0], row[1]))
        _check_ruling(ground, row)
    for kind, name in sorted(ground.trail.rulings.keys() - found):
        says = "The trail tells of this ruling, and its row is gone."
        ground.find("ruling_missing", ("rulings", kind, name), says)


def _check_ruling(ground: Ground, row: Row) -> None:
    kind, name, value, *_instants, row_id, bucket, sequence, mac = row
    where: Where = ("rulings", kind, name)
    try:
        ruling = ruling_from(row)
        is_authentic = ground.proofs.keys.is_authentic("row", ruling_authority(ruling, sequence), mac)
        is_in_place = row_id == ruling_id(ruling.kind, name) and bucket == bucket_of(row_id)
    except UNREADABLE:
        ground.find("ruling_unreadable", where, "The ruling's row cannot be read.")
        return
    if not is_authentic:
        ground.find("ruling_mac", where, "The ruling was changed by someone without the keys.")
    if not is_in_place:
        says = "The ruling is not under the id and in the bucket that its name puts it in."
        ground.find("ruling_place", where, says)
    if ground.proofs.span_says is None or ruling.kind is RulingKind.CHALLENGE:
        return
    told = ground.trail.rulings.get((kind, name))
    if told is None:
        ground.find("ruling_without_trail", where, "The trail tells nothing of this ruling.")
    elif sequence != told.sequence or told.value not in {None, value}:
        says = "The ruling is not the last that the trail tells about its name."
        ground.find("ruling_set_back", where, says)


def _check_waits(ground: Ground) -> None:
    found: set[str] = set()
    sql = f"SELECT {WAIT_COLUMNS}, sequence, mac FROM approval_waits ORDER BY effect_id"
    for row in ground.raw.execute(sql):
        found.add(row[0])
        _check_wait(ground, row)
    for effect_id in _standing(ground, ground.trail.waits.keys() - found):
        says = "The trail tells that this effect waits for people, and for whom is gone."
        ground.find("wait_missing", ("approval_waits", effect_id), says)


def _check_wait(ground: Ground, row: Row) -> None:
    effect_id, *_columns, sequence, mac = row
    where: Where = ("approval_waits", effect_id)
    try:
        wait = wait_from(row)
        is_authentic = ground.proofs.keys.is_authentic("row", wait_authority(wait), mac)
    except UNREADABLE:
        ground.find("wait_unreadable", where, "What the effect waits for cannot be read.")
        return
    if not is_authentic:
        says = "What the effect waits for was changed by someone without the keys."
        ground.find("wait_mac", where, says)
    if ground.proofs.span_says is None:
        return
    told = ground.trail.waits.get(effect_id)
    if told is None:
        says = "The trail does not tell that this effect waits for people."
        ground.find("wait_without_trail", where, says)
    elif (
        sequence != told.sequence
        or wait.statement_digest.hex() != told.digest
        or told.approvers not in (None, dict(wait.approvers))
    ):
        says = "The effect does not wait for the people and the statement that the trail tells."
        ground.find("wait_differs", where, says)


def _check_approvals(ground: Ground) -> None:
    found: set[int] = set()
    sql = f"SELECT {APPROVAL_COLUMNS}, sequence, mac FROM approvals ORDER BY effect_id, person"
    for row in ground.raw.execute(sql):
        *_columns, sequence, _mac = row
        found.add(sequence)
        _check_approval(ground, row)
    missing = ground.trail.approvals.keys() - found
    stand = _standing(ground, {ground.trail.approvals[sequence].effect_id for sequence in missing})
    for sequence in sorted(missing):
        told = ground.trail.approvals[sequence]
        if told.effect_id in stand:
            says = "The trail tells of this approval, and its row is gone."
            ground.find("approval_missing", ("approvals", told.effect_id, sequence), says)


def _check_approval(ground: Ground, row: Row) -> None:
    effect_id, person, *_columns, sequence, mac = row
    where: Where = ("approvals", effect_id, person)
    try:
        approval = approval_from(row)
        is_authentic = ground.proofs.keys.is_authentic("row", approval_authority(approval), mac)
    except UNREADABLE:
        ground.find("approval_unreadable", where, "The approval's row cannot be read.")
        return
    if not is_authentic:
        ground.find("approval_mac", where, "The approval was changed by someone without the keys.")
    if ground.proofs.span_says is None:
        return
    told = ground.trail.approvals.get(sequence)
    if told is None or told.effect_id != effect_id:
        ground.find("approval_without_trail", where, "The trail tells nothing of this approval.")
    elif told != ApprovalTold(effect_id, person, approval.key, approval.at_ms):
        says = "The approval is not by the person, the key or the time that the trail tells."
        ground.find("approval_differs", where, says)


def _standing(ground: Ground, effect_ids: set[str]) -> list[str]:
    """Return those of these effects that were not collected, by their ids."""
    sql = "SELECT 1 FROM effects WHERE effect_id = ?"
    left = effect_ids - ground.trail.collected.keys()
    return sorted(effect_id for effect_id in left if ground.rows(sql, effect_id))
