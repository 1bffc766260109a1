"""Every leaf of a real binding, edited in the ledger's file by somebody without the keys, is refused (LED-06)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from issuer.flow.binding import binding_digest
from ledger.canonical import canonical_bytes, parse_strict
from ledger.model import EffectId
from tests.fault.test_attacks import unguarded
from tests.fault.test_bound_fields import AGAIN, BY_WHOM
from tests.support.bound import SAID, opened, staged
from tests.support.cases import all_at, books, state_of
from tests.support.issuers import Made
from tests.support.service import Service, answer


@dataclass(kw_only=True)
class Kept:
    """A closed issuer whose ledger holds one permitted payment, and its genuine row."""

    made: Made
    service: Service
    effect: str
    row: tuple[bytes, bytes]

    @property
    def body(self) -> dict[str, Any]:
        body: Any = parse_strict(self.row[0])
        return body  # type: ignore[no-any-return]  # a binding is an object


def kept_issuer(folder: Path, service: Service) -> Kept:
    made = opened(folder, service)
    with made.open() as issuer:
        stage = staged(made, service, issuer)
        found = issuer._house.ledger.read(lambda view: view.effect(EffectId(stage.payment)))
        assert found is not None
        return Kept(
            made=made, service=service, effect=stage.payment, row=(found.binding, found.binding_digest)
        )


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with Service(answer(201)) as service:
        yield kept_issuer(tmp_path_factory.mktemp("bound") / "f0", service)


MEMBERS: Final = (
    *("v", "effect", "task", "subject", "actor", "caller", "invocation", "revision", "expires_ms"),
    *("operation.id", "operation.version", "operation.contract", "operation.implementation"),
    *("operation.adapter", "resource.type", "resource.id", "cost.USD.cent"),
    *(
        "payload.order",
        "payload.amount",
        "payload.vendor",
        "payload.note.commitment",
        "payload.card.commitment",
    ),
    *("actual.commitment", "destination.commitment", "preconditions.commitment", "recipients.commitment"),
)
"""Every leaf of a binding."""

COMPARED: Final = {
    f"operation.{name}": (AGAIN, name) for name in ("version", "contract", "implementation", "adapter")
}
"""What is compared with what is declared now, before anything else is."""


def leaves(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, f"{path}.{name}" if path else name)
    else:
        yield path


def edited(body: dict[str, Any], member: str) -> bytes:
    """Return the body with one leaf changed to another value of its type."""
    at: Any = body
    *above, name = ["cost", "USD.cent"] if member.startswith("cost.") else member.split(".")
    for part in above:
        at = at[part]
    old = at[name]
    if old is None:
        at[name] = "inv_" + "1" * 32
    elif type(old) is int:
        at[name] = old + 1
    else:
        at[name] = old[:-1] + ("0" if old[-1] != "0" else "1")
    assert at[name] != old
    return canonical_bytes(body)


@pytest.mark.spec("EFF-02")
def test_the_tables_name_every_member_of_a_binding(kept: Kept) -> None:
    assert set(leaves(kept.body)) == set(MEMBERS)
    tops = {member.split(".")[0] for member in MEMBERS}
    # The version of the format has no other maker than we, and a revision that touches the operation is its contract.
    by_nobody = {"v", "revision"}
    said = {member for member, *_rest in BY_WHOM.values()}
    assert {member.split(".")[0] for member in said} == tops - by_nobody
    assert {f"payload.{name}" for name in SAID} <= said
    operation = {member for member in MEMBERS if member.startswith("operation.")}
    assert operation - said == {"operation.implementation"}


@pytest.mark.spec("EFF-02", "EFF-03", "LED-06", "PER-02")
@pytest.mark.parametrize("own_digest", [False, True], ids=["the digest left", "with its own digest"])
@pytest.mark.parametrize("member", MEMBERS)
def test_a_leaf_that_was_edited_in_the_file_is_refused_and_sends_nothing(
    member: str, own_digest: bool, kept: Kept
) -> None:
    forged = edited(kept.body, member)
    digest = binding_digest(forged) if own_digest else kept.row[1]
    write(kept, forged, digest)
    try:
        with kept.made.open() as issuer:
            no = issuer.commit(kept.effect)
            assert no.state in {"permitted", None}
            assert books(issuer) == all_at()
    finally:
        write(kept, *kept.row)
    if member == "v":
        assert no.code == "ledger_unavailable"
    elif member in COMPARED:
        assert (no.code, no.more["field"]) == COMPARED[member]
    else:
        assert no.code == "permit_broken", no.as_json()
        assert no.more["field"] in {"binding", "effect"}
    assert kept.service.connections == 0


@pytest.mark.spec("EFF-02")
def test_the_genuine_binding_that_was_put_back_is_sent_once(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        kept = kept_issuer(tmp_path / "f0", service)
        write(kept, edited(kept.body, "resource.id"), kept.row[1])
        write(kept, *kept.row)
        with kept.made.open() as issuer:
            assert state_of(issuer, kept.effect) == "permitted"
            assert issuer.commit(kept.effect).code == "succeeded"
            assert issuer.commit(kept.effect).code == "succeeded"
        assert service.connections == 1


def write(kept: Kept, body: bytes, digest: bytes) -> None:
    with unguarded(kept.made) as raw:
        raw.execute(
            "UPDATE effects SET binding = ?, binding_digest = ? WHERE effect_id = ?",
            (body, digest, kept.effect),
        )
