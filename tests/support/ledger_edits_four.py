"""Edits of a ledger by somebody without keys, of what came with its fourth schema: each with what must be found.

They are made for the history of `tests.support.approved`.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from typing import Final

from tests.support.editing import Edit, an_edit


def _order(name: str) -> str:
    return f"(SELECT effect_id FROM effects WHERE resource_id = '{name}')"


WAITS, ONE, READY, ALONE, NO, ISSUED = (
    _order(name) for name in ("o-waits", "o-one", "o-ready", "o-alone", "o-no", "o-issued")
)
GONE: Final = "(SELECT effect_id FROM tombstones)"
STOP: Final = "kind = 'stop' AND name = 'operation:pay'"
HERE: Final = "(SELECT max(sequence) FROM spans)"
RULED: Final = "bucket, kind, value, voids_until_ms, since_ms, sequence, mac"


def _ruling(name: str, what: str, change: str, kind: str = "stop", which: str = "operation:pay") -> Edit:
    return an_edit(
        name,
        what,
        f"rulings {kind} {which}",
        "",
        f"UPDATE rulings SET {change} WHERE kind = '{kind}' AND name = '{which}'",
    )


def _removed(kind: str, which: str) -> Edit:
    return an_edit(
        f"the ruling about the {kind} {which} removed",
        "ruling_missing",
        f"rulings {kind} {which}",
        "",
        f"DELETE FROM rulings WHERE kind = '{kind}' AND name = '{which}'",
    )


def _wait(name: str, what: str, change: str, effect: str = WAITS) -> Edit:
    return an_edit(
        name,
        what,
        "approval_waits",
        effect,
        f"UPDATE approval_waits SET {change} WHERE effect_id = {effect}",
    )


def _approval(name: str, what: str, change: str, effect: str = ONE) -> Edit:
    return an_edit(
        name, what, "approvals", effect, f"UPDATE approvals SET {change} WHERE effect_id = {effect}"
    )


def _approved(
    name: str, what: str, effect: str, *, of: str = ONE, person: str = "person", at: str = "sequence"
) -> Edit:
    return an_edit(
        name,
        what,
        "approvals",
        effect,
        f"INSERT INTO approvals SELECT {effect}, {person}, key, signature, at_ms, {at}, mac FROM approvals "
        f"WHERE effect_id = {of} ORDER BY sequence LIMIT 1",
    )


KEY_RULED: Final = "SHA256:" + "k" * 42 + "A"
EDITS_FOUR = (
    _ruling("a stop that is open again", "ruling_mac", "value = 'open'"),
    _ruling("a stop that was lifted", "ruling_set_back", "value = 'open'"),
    _ruling("less that is void", "ruling_mac", "voids_until_ms = 0"),
    _ruling("a later stop", "ruling_mac", "since_ms = since_ms + 1"),
    _ruling("a stop at another span", "ruling_set_back", "sequence = sequence - 1"),
    _ruling("a stop in another bucket", "ruling_place", "bucket = (bucket + 1) % 64"),
    _ruling(
        "a stop under another id",
        "ruling_place",
        "ruling_id = 'rul_' || hex(zeroblob(16)), bucket = 0",
    ),
    _ruling("a stop that cannot be read", "ruling_unreadable", "voids_until_ms = -1"),
    _ruling("the revision before", "ruling_set_back", f"value = '{'1a' * 32}'", "revision", "active"),
    _ruling("another revision", "ruling_mac", f"value = '{'4d' * 32}'", "revision", "active"),
    _ruling("another token", "ruling_mac", f"value = '{'4d' * 32}'", "token", "host:ap-service"),
    _ruling("a sink at another place", "ruling_mac", "value = 'jsonl /dev/null'", "sink", "former"),
    _ruling("a sink of an earlier span", "ruling_set_back", "sequence = sequence - 1", "sink", "former"),
    _ruling("more that a sink is not given", "ruling_mac", "value = '9'", "quarantine", "former:1"),
    _ruling("a challenge that lasts", "ruling_mac", "value = '9007199254740991'", "challenge", "chl-1"),
    an_edit(
        "a token of another host",
        "ruling_without_trail",
        "rulings token host:other",
        "",
        "UPDATE rulings SET name = 'host:other' WHERE kind = 'token'",
    ),
    an_edit(
        "a revoked key under another name",
        "ruling_missing",
        f"rulings key {KEY_RULED}",
        "",
        "UPDATE rulings SET name = 'SHA256:other' WHERE kind = 'key'",
    ),
    an_edit(
        "a stop of nothing",
        "ruling_without_trail",
        "rulings stop host:other",
        "",
        f"INSERT INTO rulings(ruling_id, name, {RULED}) SELECT 'rul_' || hex(zeroblob(16)), 'host:other', {RULED} "
        f"FROM rulings WHERE {STOP}",
    ),
    *(
        _removed(*row)
        for row in (
            ("revision", "active"),
            ("token", "host:ap-service"),
            ("stop", "operation:pay"),
            ("key", KEY_RULED),
            ("sink", "former"),
            ("quarantine", "former:1"),
        )
    ),
    an_edit("a challenge removed", "standing", "head", "", "DELETE FROM rulings WHERE kind = 'challenge'"),
    _wait("fewer people", "wait_mac", """approvers = '{"finance":1}'""", READY),
    _wait("fewer people than were told", "wait_differs", """approvers = '{"finance":1}'""", READY),
    _wait("people of another group", "wait_mac", """approvers = '{"bots":1}'"""),
    _wait("nobody at all", "wait_unreadable", "approvers = '{}'"),
    _wait("no list of people", "wait_unreadable", "approvers = '['"),
    _wait("another statement", "wait_mac", "statement_digest = zeroblob(32)"),
    _wait("another statement than was told", "wait_differs", "statement_digest = zeroblob(32)"),
    _wait("asked earlier", "wait_mac", "asked_ms = asked_ms - 1"),
    _wait("asked at another span", "wait_differs", "sequence = sequence - 1"),
    an_edit(
        "what is waited for removed",
        "wait_missing",
        "approval_waits",
        WAITS,
        f"DELETE FROM approval_waits WHERE effect_id = {WAITS}",
    ),
    an_edit(
        "a wait of what needed nobody",
        "wait_without_trail",
        "approval_waits",
        ISSUED,
        f"INSERT INTO approval_waits SELECT {ISSUED}, approvers, statement_digest, asked_ms, sequence, mac "
        f"FROM approval_waits WHERE effect_id = {WAITS}",
    ),
    an_edit(
        "a wait of what was collected",
        "foreign_key",
        "approval_waits",
        "",
        f"INSERT INTO approval_waits SELECT {GONE}, approvers, statement_digest, asked_ms, sequence, mac "
        f"FROM approval_waits WHERE effect_id = {WAITS}",
    ),
    _approval("another person", "approval_mac", "person = 'u-eve'"),
    _approval("another person than was told", "approval_differs", "person = 'u-eve'"),
    _approval("another key", "approval_mac", f"key = 'SHA256:{'z' * 42}A'"),
    _approval("another key than was told", "approval_differs", f"key = 'SHA256:{'z' * 42}A'"),
    _approval("another signature", "approval_mac", "signature = signature || 'x'"),
    _approval("an earlier approval", "approval_differs", "at_ms = at_ms - 1"),
    _approval("a signature that cannot be read", "approval_unreadable", "signature = ''"),
    _approval("an approval at another span", "approval_without_trail", "sequence = sequence - 1"),
    _approved("one approval twice", "approval_differs", ONE, person="'u-cy'"),
    _approved("an approval copied to another effect", "approval_without_trail", WAITS),
    _approved("the approval of another approves what waits", "approval_mac", WAITS, of=ALONE),
    _approved("an approval after a no", "approval_without_trail", NO),
    _approved("an approval by its own span", "approval_mac", ISSUED, at=HERE),
    an_edit(
        "the approval of another effect",
        "approval_mac",
        "approvals",
        ONE,
        "UPDATE approvals SET (person, key, signature, at_ms, mac) = (SELECT person, key, signature, at_ms, mac "
        f"FROM approvals WHERE effect_id = {ALONE}) WHERE effect_id = {ONE}",
    ),
    an_edit(
        "one of three removed",
        "approval_missing",
        "approvals",
        READY,
        f"DELETE FROM approvals WHERE effect_id = {READY} AND person = 'u-cy'",
    ),
    an_edit(
        "the only one removed",
        "permit_without_approval",
        "permits",
        ALONE,
        f"DELETE FROM approvals WHERE effect_id = {ALONE}",
    ),
    an_edit(
        "a permit as if somebody had approved",
        "permit_without_approval",
        "permits",
        ISSUED,
        f"UPDATE permits SET tier = 'approval' WHERE effect_id = {ISSUED}",
    ),
)
