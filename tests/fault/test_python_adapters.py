"""A third party's adapter runs only as the owner admitted it, and of its words only what was declared is believed."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.errors import SetupError
from issuer.operations.contract import Look, Request, Seen
from issuer.operations.declaration import RegistrationCode as Code
from issuer.wire import Answer
from ledger.model import DurationMs, EffectId
from tests.support.cases import all_at, books, state_of, trail
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.revised import activated, rewritten
from tests.support.service import Service, answer
from tests.support.shell import environment, issuer_here, issuer_process
from tests.support.third_party import (
    NO_DIGEST,
    TERMS,
    Installed,
    admitted_issuer,
    changes_at,
    installed,
    python_table,
    shown_digest,
)

CANARY = "canary-4711"


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture(name="shop")
def _shop(tmp_path: Path) -> Iterator[Installed]:
    with installed(tmp_path / "site") as shop:
        yield shop


def why(made_in: Path, shop: Installed, port: int, *, digest: str = NO_DIGEST, **terms: str) -> SetupError:
    """Return how an issuer with this declaration is refused."""
    table = python_table(shop.name, port, digest=digest, **terms)
    with pytest.raises(SetupError) as refused:
        standard_issuer(made_in, port=port, changes=changes_at(table, port))
    assert CANARY not in str(refused.value)
    return refused.value


def digest_of(shop: Installed, folder: Path) -> str:
    return shown_digest(why(folder, shop, 9))


# ------------------------------------------------------------------------------------ admission


@pytest.mark.spec("OPR-01", "OPR-02", "EFF-02", "SUR-01")
def test_an_admitted_adapter_sends_through_the_api_and_the_command_line(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    service.then(answer(201), answer(201), answer(409))
    made = admitted_issuer(tmp_path, shop, port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        done = issuer.commit(effect)
        assert (done.code, done.state) == ("succeeded", "succeeded")
        assert issuer.commit(effect).code == "succeeded"
        assert books(issuer) == all_at(settled=300)
        moved = [
            entry.attributes for entry in trail(issuer) if entry.attributes.get("permit.effect.id") == effect
        ]
        assert any(f"python:{shop.name}" in str(attributes) for attributes in moved)
    environ = environment({})
    environ["PYTHONPATH"] += f"{os.pathsep}{shop.site}"
    said: dict[str, Any] = {"order": "o-2", "amount": 20}
    asking = (
        "--json",
        "--profile",
        str(made.profile),
        "request",
        "refund",
        "--task",
        "t1",
        "--actor",
        "agent-7",
    )
    ran = issuer_process(*asking, "--payload", "-", at=tmp_path, stdin=json.dumps(said).encode(), env=environ)
    assert ran.code == "permitted", ran.out
    ran = issuer_process(
        "--json", "--profile", str(made.profile), "commit", ran.effect, at=tmp_path, env=environ
    )
    assert (ran.exit, ran.code) == (0, "succeeded"), ran.out
    assert [request.key for request in service.effects] == [effect, ran.effect]
    assert service.connections == 2


def activated_outside(made: Made, shop: Installed) -> None:
    """Let the owner activate in a process of its own, which holds no code from before."""
    environ = environment({})
    environ["PYTHONPATH"] += f"{os.pathsep}{shop.site}"
    ran = issuer_process("--json", "--profile", str(made.profile), "activate", at=made.folder, env=environ)
    assert (ran.exit, ran.code) == (0, "activated"), ran.out


@pytest.mark.spec("OPR-02", "SUR-01")
def test_an_adapter_that_nobody_admitted_is_refused_with_its_digest_and_none_of_it_runs(
    shop: Installed, tmp_path: Path
) -> None:
    shop.file.write_text("raise SystemExit('it ran')\n" + shop.file.read_text("utf-8"), encoding="utf-8")
    no = why(tmp_path / "f0", shop, 9)
    assert no.reason == str(Code.ADAPTER_NOT_ADMITTED)
    assert len(shown_digest(no)) == 64
    assert shop.module not in sys.modules
    assert shop.name not in sys.modules


@pytest.mark.spec("OPR-02")
def test_an_upgraded_package_is_refused_where_an_issuer_opens_and_can_still_be_read(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = admitted_issuer(tmp_path, shop, port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    with shop.file.open("a", encoding="utf-8") as file:
        file.write("# 1.1\n")
    with pytest.raises(SetupError) as refused:
        made.open()
    assert refused.value.reason == str(Code.ADAPTER_NOT_ADMITTED)
    with made.open(reading=True) as issuer:
        assert issuer.show(effect).state == "permitted"
        assert issuer.timeline(effect).code == "found"
    environ = environment({})
    environ["PYTHONPATH"] += f"{os.pathsep}{shop.site}"
    ran = issuer_process("--json", "--profile", str(made.profile), "commit", effect, at=tmp_path, env=environ)
    assert (ran.exit, ran.code) == (2, "malformed")
    assert f'digest = "{shown_digest(refused.value)}"' in ran.answer["say"]
    assert service.connections == 0


@pytest.mark.spec("OPR-02", "EFF-07")
def test_a_package_that_is_upgraded_under_an_open_issuer_voids_its_permits_and_prepares_nothing(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = admitted_issuer(tmp_path, shop, port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        genuine = shop.file.read_text("utf-8")
        shop.file.write_text(genuine + "# 1.1\n", encoding="utf-8")
        no = issuer.commit(effect)
        assert (no.code, no.more["field"], no.state) == ("prepare_again", "implementation", "permitted")
        assert refund(issuer, order="o-2").code == "cannot_prepare"
        assert books(issuer) == all_at()
        # The owner admits what is there now; this process still holds the code from before.
        text = made.profile.read_text("utf-8")
        admitted = shown_digest(why(tmp_path / "again", shop, service.port))
        (before,) = {line.split('digest = "')[1][:64] for line in text.splitlines() if 'digest = "' in line}
        rewritten(made.profile, text.replace(before, admitted))
        activated_outside(made, shop)
        for no in (issuer.commit(effect), refund(issuer, order="o-2")):
            assert (no.code, no.more["reason"]) == ("ledger_unavailable", "revision_unusable")
        assert books(issuer) == all_at()
        with pytest.raises(SetupError) as refused:
            made.open()
        assert refused.value.reason == str(Code.ADAPTER_CHANGED)
        rewritten(made.profile, text)
        shop.file.write_text(genuine, encoding="utf-8")
        activated_outside(made, shop)
        service.then(answer(201))
        assert issuer.commit(effect).code == "succeeded"
    assert service.connections == 1


@pytest.mark.spec("OPR-02")
@pytest.mark.parametrize(
    "change",
    ["another file", "a file more", "a file less", "a file under another name", "a link to a folder"],
)
def test_every_file_of_the_package_is_part_of_its_digest(
    change: str, shop: Installed, tmp_path: Path
) -> None:
    package = shop.file.parent
    (package / "data.json").write_text("{}", encoding="utf-8")
    before = digest_of(shop, tmp_path / "before")
    assert digest_of(shop, tmp_path / "same") == before
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "sending.cpython-311.pyc").write_bytes(b"x")
    assert digest_of(shop, tmp_path / "cached") == before
    if change == "another file":
        (package / "data.json").write_text("[]", encoding="utf-8")
    elif change == "a file more":
        (package / "more.py").write_text("", encoding="utf-8")
    elif change == "a file less":
        (package / "data.json").unlink()
    elif change == "a file under another name":
        (package / "data.json").rename(package / "more.json")
    else:
        (package / "more").symlink_to(tmp_path)
        assert why(tmp_path / "after", shop, 9).reason == str(Code.ADAPTER_UNREADABLE)
        return
    assert digest_of(shop, tmp_path / "after") != before


@pytest.mark.spec("OPR-01", "OPR-02")
def test_a_name_that_nobody_or_two_packages_have_is_refused(shop: Installed, tmp_path: Path) -> None:
    nobody = Installed(name="nobody", site=shop.site, file=shop.file)
    assert why(tmp_path / "f0", nobody, 9).reason == str(Code.ADAPTER_NOT_FOUND)
    other = shop.site / "another-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n", encoding="utf-8")
    points = f"[permit_issuer.adapters]\n{shop.name} = json:loads\n"
    (other / "entry_points.txt").write_text(points, encoding="utf-8")
    assert why(tmp_path / "f1", shop, 9).reason == str(Code.ADAPTER_NOT_FOUND)


@pytest.mark.spec("OPR-02", "SUR-01")
def test_a_host_hands_over_a_factory_which_is_held_to_its_digest_as_well(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = admitted_issuer(tmp_path, shop, port=service.port)
    (shop.site / f"{shop.name}-1.0.dist-info" / "entry_points.txt").unlink()
    with pytest.raises(SetupError) as refused:
        made.open()
    assert refused.value.reason == str(Code.ADAPTER_NOT_FOUND)
    with installed(tmp_path / "other") as other:
        factories = {}
        for adapter in (shop, other):
            __import__(adapter.module)
            factories[adapter.name] = sys.modules[adapter.module].make
        service.then(answer(201))
        with made.open(adapters={shop.name: factories[shop.name]}) as issuer:
            effect = permitted(refund(issuer))
            assert issuer.commit(effect).code == "succeeded"
            text = made.profile.read_text("utf-8")
            rewritten(
                made.profile, text.replace("per_task = { permits = 100 }", "per_task = { permits = 99 }")
            )
            activated(made.profile, adapters={shop.name: factories[shop.name]})
            assert refund(issuer, order="o-2").code == "permitted"
        for handed in (factories[other.name], object(), factories[shop.name].__call__):
            with pytest.raises(SetupError) as refused:
                made.open(adapters={shop.name: handed})
            assert refused.value.reason in {str(Code.ADAPTER_NOT_ADMITTED), str(Code.ADAPTER_UNREADABLE)}


BEYOND = {
    "no failed": ("", Code.PROOF_NOT_IMPLEMENTED),
    "no charge": ("", Code.CHARGE_NOT_IMPLEMENTED),
    "no key": ("", Code.KEY_NOT_IMPLEMENTED),
    "window": (', conditional = "service"', Code.CHECK_THEN_WRITE),
    "no condition": (', conditional = "service"', Code.CONDITION_NOT_IMPLEMENTED),
    "": (', conditional = "file_system"', Code.CONDITION_NOT_IMPLEMENTED),
    "hints": ("", Code.KEY_NOT_IMPLEMENTED),
    "no dispatch": ("", Code.ADAPTER_MALFORMED),
    "cannot be made": ("", Code.ADAPTER_FAILED),
}


@pytest.mark.spec("OPR-01", "OPR-04", "OPR-05")
@pytest.mark.parametrize("manner", BEYOND)
def test_what_an_admitted_adapter_does_not_do_cannot_be_declared_of_it(
    manner: str, shop: Installed, tmp_path: Path
) -> None:
    more, code = BEYOND[manner]
    admitted = digest_of(shop, tmp_path / "first")
    no = why(tmp_path / "f0", shop, 9, digest=admitted, terms=TERMS + more, manner=manner)
    assert no.reason == str(code)


@pytest.mark.spec("OPR-01", "REC-02")
def test_an_inspection_that_the_adapter_does_not_have_cannot_be_declared(tmp_path: Path) -> None:
    with installed(tmp_path / "site", factory="make_blind") as blind:
        admitted = digest_of(blind, tmp_path / "first")
        no = why(tmp_path / "f0", blind, 9, digest=admitted, terms=f'{TERMS}, absent = "never"')
        assert no.reason == str(Code.INSPECTION_NOT_IMPLEMENTED)


# ------------------------------------------------------------------------------------ what is believed


def sent(issuer: Issuer) -> Answer:
    return issuer.commit(permitted(refund(issuer)))


def made_with(shop: Installed, service: Service, folder: Path, manner: str, terms: str = TERMS) -> Made:
    return admitted_issuer(folder, shop, port=service.port, manner=manner, terms=terms)


def assert_nothing_of_it_is_kept(made: Made, *said: Answer) -> None:
    assert all(CANARY not in str(one.as_json()) for one in said)
    for path in [made.sink, *made.folder.rglob("*")]:
        assert not path.is_file() or CANARY.encode() not in path.read_bytes() or path == made.profile


ENDS: dict[str, tuple[int, str, int, int]] = {
    "": (201, "succeeded", 0, 300),
    "not sent": (201, "not_dispatched", 0, 0),
    "fails unsent": (201, "outcome_unknown", 300, 0),
    "fails sent": (201, "outcome_unknown", 300, 0),
    "no answer": (201, "outcome_unknown", 300, 0),
    "a long word": (201, "succeeded", 0, 300),
    "charges less": (201, "succeeded", 0, 120),
    "charges nothing": (201, "succeeded", 0, 0),
    "charges below": (201, "outcome_unknown", 300, 0),
    "charges a float": (201, "outcome_unknown", 300, 0),
    "charges true": (201, "outcome_unknown", 300, 0),
    "charges nan": (201, "outcome_unknown", 300, 0),
    "charges text": (201, "outcome_unknown", 300, 0),
    "charges 2**53": (201, "outcome_unknown", 300, 0),
}
"""The adapter's manner; the status it hears; how the commit ends; what is reserved and settled then."""


@pytest.mark.spec("REP-04", "REP-05", "EFF-04", "SEC-01", "BUD-03")
@pytest.mark.parametrize("manner", ENDS)
def test_an_adapter_is_believed_as_far_as_its_contract_goes(
    manner: str, shop: Installed, service: Service, tmp_path: Path
) -> None:
    status, code, reserved, settled = ENDS[manner]
    service.then(answer(status))
    made = made_with(shop, service, tmp_path, manner)
    with made.open() as issuer:
        done = sent(issuer)
        assert done.code == code
        assert books(issuer) == all_at(reserved=reserved, settled=settled)
        again = issuer.commit(str(done.effect))
    assert again.code != "permitted"
    assert service.connections == (0 if manner in {"not sent", "fails unsent"} else 1)
    assert_nothing_of_it_is_kept(made, done, again)


UNDECLARED: dict[str, tuple[int, str, str]] = {
    "failed": (409, 'proves = ["succeeded"]', "outcome_unknown"),
    "no effect": (422, 'proves = ["succeeded"]', "outcome_unknown"),
    "succeeded": (201, "charges = false", "outcome_unknown"),
    "no effect, declared": (422, 'proves = ["succeeded", "no_effect"]', "no_effect"),
    "accepted, declared": (202, 'proves = ["succeeded", "accepted"]', "outcome_unknown"),
    "a part, declared": (207, 'proves = ["succeeded", "partial"]', "outcome_unknown"),
}
"""What the adapter claims; the status it hears; what the owner declared; how the commit ends."""


@pytest.mark.spec("OPR-01", "REP-05", "REP-06")
@pytest.mark.parametrize("row", UNDECLARED)
def test_a_proof_that_was_not_declared_proves_nothing(
    row: str, shop: Installed, service: Service, tmp_path: Path
) -> None:
    status, terms, code = UNDECLARED[row]
    service.then(answer(status))
    made = made_with(shop, service, tmp_path, "", terms)
    with made.open() as issuer:
        assert sent(issuer).code == code
        assert books(issuer) == all_at(reserved=0 if code == "no_effect" else 300)
    assert service.connections == 1


CHARGES: dict[str, tuple[int, str, str, int, int]] = {
    "less beside a success": (201, "charges less", "succeeded", 0, 300),
    "something beside no effect": (422, "charges less", "outcome_unknown", 300, 0),
    "nothing beside no effect": (422, "charges nothing", "no_effect", 0, 0),
}


@pytest.mark.spec("OPR-01", "REC-05", "BUD-03")
@pytest.mark.parametrize("row", CHARGES)
def test_a_charge_that_was_not_declared_lowers_nothing_and_contradicts_all_the_same(
    row: str, shop: Installed, service: Service, tmp_path: Path
) -> None:
    status, manner, code, reserved, settled = CHARGES[row]
    service.then(answer(status))
    made = made_with(shop, service, tmp_path, manner, 'proves = ["succeeded", "no_effect"]')
    with made.open() as issuer:
        assert sent(issuer).code == code
        assert books(issuer) == all_at(reserved=reserved, settled=settled)


@pytest.mark.spec("EFF-06", "SEC-01")
@pytest.mark.parametrize(
    "manner",
    ["prepare refuses", "prepare fails", "prepare returns nothing", "prepare pins a float"],
)
def test_an_adapter_that_cannot_prepare_leaves_a_no_in_our_own_words(
    manner: str, shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = made_with(shop, service, tmp_path, manner)
    with made.open() as issuer:
        no = refund(issuer)
        assert (no.code, no.effect) == ("cannot_prepare", None)
        assert books(issuer) == all_at()
    assert_nothing_of_it_is_kept(made, no)
    assert service.connections == 0


@pytest.mark.spec("EFF-07", "SEC-01")
def test_a_word_of_an_adapter_about_its_target_is_ours_and_costs_nothing(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = made_with(shop, service, tmp_path, "look says words")
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        no = issuer.commit(effect)
        assert (no.code, no.more["field"]) == ("prepare_again", "target_changed")
        assert (state_of(issuer, effect), books(issuer)) == ("permitted", all_at())
    assert_nothing_of_it_is_kept(made, no)
    assert service.connections == 0


@pytest.mark.spec("OPR-02", "EFF-06", "EFF-07", "POL-02")
def test_a_read_before_the_decision_and_an_inspection_at_a_service_hold_around_an_adapter_as_well(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    reads = (
        f'before = {{ url = "{service.url}/orders/{{order}}", facts = {{ paid = "bool" }} }}\n'
        f'inspect = {{ url = "{service.url}/effects/{{effect_id}}", found = "/id", absent = "never" }}'
    )
    service.then(*[answer(200, body=b'{"paid": true}', effect=False)] * 2)
    made = admitted_issuer(tmp_path, shop, port=service.port, further=reads)
    with made.open() as issuer:
        operation = issuer._house.operations["refund"]
        assert operation.terms.inspection is not None
        assert (operation.terms.inspection.by, operation.inspector is None) == ("http", False)
        effect = permitted(refund(issuer))
        asked = service.connections
        assert asked == 1
        genuine = shop.file.read_text("utf-8")
        shop.file.write_text(genuine + "# 1.1\n", encoding="utf-8")
        no = issuer.commit(effect)
        assert (no.code, no.more["field"]) == ("prepare_again", "implementation")
        assert service.connections == asked


@pytest.mark.spec("REC-02", "SEC-01")
@pytest.mark.parametrize("manner", ["", "inspect fails", "inspect returns text"])
def test_an_inspection_that_is_none_sees_nothing(
    manner: str, shop: Installed, service: Service, tmp_path: Path
) -> None:
    seen, reference = (Seen.UNCLEAR, "") if manner else (Seen.FOUND, "r-1")
    made = made_with(shop, service, tmp_path, manner, f'{TERMS}, absent = "never"')
    with made.open() as issuer:
        operation = issuer._house.operations["refund"]
        pinned = operation.adapter.prepare(
            request := Request(values={"order": "o-1", "amount": 300}, registries={})
        )
        look = Look(
            effect_id=EffectId("eff_" + "1" * 32),
            request=request,
            preparation=pinned,
            remaining_ms=DurationMs(1_000),
        )
        assert operation.inspector is not None
        found = operation.inspector.inspect(look)
    assert (found.seen, found.reference, found.source) == (seen, reference, f"python:{shop.name}")


@pytest.mark.spec("REC-01", "REC-02", "OPR-01", "OPR-02")
def test_a_lost_answer_is_found_by_the_inspection_of_the_adapter_and_by_no_other_code(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    service.then(answer(201), answer(201))
    made = made_with(shop, service, tmp_path, "fails sent", f'{TERMS}, absent = "never"')
    with made.open() as issuer:
        effects = [permitted(refund(issuer, order=order)) for order in ("o-1", "o-2")]
        assert [issuer.commit(effect).code for effect in effects] == ["outcome_unknown"] * 2
        found = issuer.reconcile(effects[0])
        assert (found.code, found.state) == ("succeeded", "succeeded")
        assert books(issuer) == all_at(reserved=300, settled=300)
        shop.file.write_text(shop.file.read_text("utf-8") + "# 1.1\n", encoding="utf-8")
        no = issuer.reconcile(effects[1])
        assert state_of(issuer, effects[1]) == "unknown", no.as_json()
        assert books(issuer) == all_at(reserved=300, settled=300)
    assert service.connections == 2


@pytest.mark.spec("OPR-02", "SUR-03")
def test_doctor_names_the_adapter_that_was_not_admitted_and_the_digest_to_write(
    shop: Installed, service: Service, tmp_path: Path
) -> None:
    made = admitted_issuer(tmp_path, shop, port=service.port)
    shop.file.write_text(shop.file.read_text("utf-8") + "# 1.1\n", encoding="utf-8")
    with pytest.raises(SetupError) as refused:
        made.open()
    told = issuer_here("--json", "--profile", str(made.profile), "doctor", at=tmp_path)
    assert told.exit != 0
    assert f'write digest = \\"{shown_digest(refused.value)}\\"' in told.out
