"""One owner revision: what is in force was activated, is proven each time it is read, and moves for all at once."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.commands import activate
from issuer.drafts import differing_files
from issuer.errors import SetupError
from issuer.flow.steps import Reached
from issuer.places import Places
from issuer.profile import ProfileRefused
from issuer.revised import in_force
from issuer.revisions import NO_REVISION, forget_snapshots, load_snapshot, read_draft, stored_revisions
from ledger.errors import LedgerCorrupt, LedgerUnavailable
from tests.support.cases import books
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.ledgers import without_guards
from tests.support.racing import Child
from tests.support.restoring import published, restored, saved
from tests.support.revised import activated, demand_one_revision, rewritten, spans_of
from tests.support.service import Service, answer
from tests.support.shell import issuer_here

NEVER = '@id("never") forbid (principal, action in Action::"permit", resource);\n'


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(answer(201), answer(201)) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def closed(made: Made) -> str:
    """Activate a revision that permits nothing; return its digest."""
    rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + NEVER)
    return activated(made.profile)


def active(issuer: Issuer) -> str:
    return str(issuer._house.ledger.read(in_force))


def rows(issuer: Issuer) -> list[dict[str, object]]:
    told = issuer.revisions().more["revisions"]
    assert isinstance(told, list)
    return told


def snapshot(made: Made, revision: str) -> Path:
    return Places(made.profile).revisions / revision


@pytest.mark.spec("POL-07", "LED-01")
def test_init_activates_what_is_there_and_its_copy_is_private_and_whole(made: Made) -> None:
    with made.open() as issuer:
        revision = active(issuer)
        row = rows(issuer)[0]
    assert (row["revision"], row["active"], row["stored"], row["by"]) == (revision, True, True, "u-ana")
    assert (row["reason"], row["files"]) == ("first", ["policies/policies.cedar", "profile.toml"])
    folder = snapshot(made, revision)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert load_snapshot(Places(made.profile), revision).differing(read_draft(Places(made.profile))) == ()


@pytest.mark.spec("POL-07", "LED-08")
def test_a_copy_that_is_gone_is_no_loss_while_the_files_on_disk_are_still_that_revision(made: Made) -> None:
    with made.open() as issuer:
        revision = active(issuer)
    shutil.rmtree(snapshot(made, revision).parent)
    with made.open() as issuer:
        assert (active(issuer), issuer._house.revision) == (revision, revision)
        assert refund(issuer).code == "permitted"
    policy = made.folder / "policies" / "policies.cedar"
    rewritten(policy, policy.read_text(encoding="utf-8") + "\n// one byte more is another revision\n")
    with pytest.raises(LedgerUnavailable) as refused:
        made.open()
    assert refused.value.reason == "revision_missing"


@pytest.mark.spec("POL-07", "LED-06")
@pytest.mark.parametrize(
    "what", ["edited", "gone", "a file gone", "open to others", "a link", "another's manifest"]
)
def test_a_copy_that_is_not_what_was_activated_is_refused_until_an_owner_activates(
    made: Made, what: str
) -> None:
    with made.open() as issuer:
        effect, revision = permitted(refund(issuer)), active(issuer)
    folder = snapshot(made, revision)
    policy = next(folder.glob("*policies.cedar"))
    draft = made.folder / "policies" / "policies.cedar"
    kept = draft.read_text(encoding="utf-8")
    if what == "edited":
        policy.write_bytes(policy.read_bytes().replace(b"500", b"900"))
    elif what == "gone":
        folder.rename(folder.with_name("elsewhere"))
        rewritten(draft, kept.replace("500", "900"))
    elif what == "a file gone":
        policy.unlink()
    elif what == "open to others":
        policy.chmod(0o644)
    elif what == "a link":
        policy.rename(made.folder / "kept")
        policy.symlink_to(made.folder / "kept")
    else:
        (folder / "manifest").write_bytes(
            (folder / "manifest").read_bytes().replace(b"0001", b"0002") + b"\n"
        )
    with pytest.raises(LedgerUnavailable) as refused:
        made.open()
    assert refused.value.reason in {"revision_broken", "revision_missing"}
    assert "`issuer activate`" in refused.value.message
    with made.open(reading=True) as issuer:
        assert issuer.show(effect).state == "permitted"
        assert issuer.commit(effect).code == "denied"
    if what == "gone":
        rewritten(draft, kept)
    activated(made.profile)
    with made.open() as issuer:
        assert issuer.commit(effect).code == "succeeded"
        assert [row["reason"] for row in rows(issuer)] == ["repaired", "first"]


@pytest.mark.spec("POL-07", "LED-01")
@pytest.mark.parametrize("names", [("vendors", "vendors (old).csv"), ("a'b.csv", "a'b.csv!")])
def test_a_copy_is_read_back_whatever_order_its_names_have_as_text_of_a_manifest(
    made: Made, names: tuple[str, str]
) -> None:
    text = made.profile.read_text(encoding="utf-8")
    for number, name in enumerate(names):
        (made.folder / name).write_text(f"key,account\nacme,{number}\n", encoding="utf-8")
        text += f'\n[registry.r{number}]\nfile = "{name}"\nkey = "key"\nfields = ["account"]\n'
    rewritten(made.profile, text)
    revision = activated(made.profile)
    with made.open() as issuer:
        assert active(issuer) == revision
        assert refund(issuer).code == "permitted"


@pytest.mark.spec("POL-04", "POL-07")
def test_a_pipe_among_the_policies_keeps_nobody_waiting(made: Made) -> None:
    os.mkfifo(made.folder / "policies" / "pipe.cedar")
    found: list[object] = []

    def look() -> None:
        with made.open() as issuer:
            found.append(differing_files(Places(made.profile), active(issuer)))
        with pytest.raises(SetupError) as refused:
            activate(made.profile)
        found.append(refused.value.reason)

    waiting = threading.Thread(target=look, daemon=True)
    waiting.start()
    waiting.join(30)
    assert found == [("policies/pipe.cedar",), "policies_unreadable"]


@pytest.mark.spec("POL-07", "AUD-01")
def test_bad_files_are_refused_on_record_and_the_same_again_changes_nothing(made: Made) -> None:
    good = made.profile.read_text(encoding="utf-8")
    made.profile.write_text(good.replace("lifetime = ", "lifetme = "), encoding="utf-8")
    with pytest.raises(ProfileRefused):
        Issuer.activate(made.profile)
    made.profile.write_text(good, encoding="utf-8")
    assert Issuer.activate(made.profile).code == "nothing_to_change"
    with made.open() as issuer:
        assert len(demand_one_revision(spans_of(issuer))) == 1
        refusals = [span for span in spans_of(issuer) if span["permit.transition"] == "refused"]
    told = [(span["permit.command"], span["permit.refusal"]) for span in refusals]
    assert told == [("activate", "malformed"), ("activate", "nothing_to_change")]


@pytest.mark.spec("POL-07")
def test_an_earlier_revision_is_named_by_its_digits_and_only_one_that_was_in_force(made: Made) -> None:
    with made.open() as issuer:
        first = active(issuer)
    second = closed(made)
    places = Places(made.profile)
    forged = places.revisions / ("f" * 64)
    os.rename(snapshot(made, first), forged)  # noqa: PTH104
    for prefix, code in (
        ("f" * 8, "unknown_reference"),
        (first[:8], "unknown_reference"),
        (first[:7], "malformed"),
    ):
        assert activate(made.profile, prefix).code == code
    os.rename(forged, snapshot(made, first))  # noqa: PTH104
    done = Issuer.activate(made.profile, first[:8])
    assert (done.code, done.more["files"]) == ("activated", ["policies/policies.cedar"])
    with made.open() as issuer:
        assert permitted(refund(issuer))
        assert list(demand_one_revision(spans_of(issuer))) == [first, second, first]


@pytest.mark.spec("POL-07", "REP-05", "AUD-02")
def test_an_outcome_is_recorded_although_the_revision_moved_while_it_was_sent(
    made: Made, service: Service
) -> None:
    moved: list[str] = []

    def observe(step: str) -> None:
        if step == Reached.ANSWERED and not moved:
            moved.append(closed(made))

    with made.open(observe=observe) as issuer:
        effect = permitted(refund(issuer))
        assert issuer.commit(effect).code == "succeeded"
        in_order = demand_one_revision(spans_of(issuer))
        ended = [span for span in spans_of(issuer) if span["permit.transition"] == "effect.succeeded"]
        assert refund(issuer, order="o-2").code == "denied"
    assert [span["permit.revision"] for span in ended] == moved == list(in_order[1:])
    assert service.connections == 1


@pytest.mark.spec("POL-07", "POL-05")
def test_what_was_decided_under_a_revision_that_moved_before_the_lock_is_decided_anew(
    made: Made, service: Service
) -> None:
    moved: list[str] = []

    def observe(step: str) -> None:
        if step == Reached.SINKS_PROBED and not moved:
            moved.append(closed(made))

    with made.open(observe=observe) as issuer:
        effect = permitted(refund(issuer))
        assert issuer.commit(effect).code == "denied"
        demand_one_revision(spans_of(issuer))
        assert books(issuer, "t1")["t1"].reserved == 0
    assert service.connections == 0


@pytest.mark.spec("POL-07")
def test_an_owner_who_activates_without_end_stops_the_command_and_nothing_is_sent(
    made: Made, service: Service
) -> None:
    turns: list[str] = []

    def observe(step: str) -> None:
        if step == Reached.SINKS_PROBED:
            text = STANDARD_POLICY + f"// {len(turns)}\n"
            rewritten(made.folder / "policies" / "policies.cedar", text)
            turns.append(activated(made.profile))

    with made.open(observe=observe) as issuer:
        effect = permitted(refund(issuer))
        no = issuer.commit(effect)
        assert (no.code, no.more["reason"], len(turns)) == ("ledger_unavailable", "revision_moved", 3)
        assert issuer.show(effect).state == "permitted"
    assert service.connections == 0


@pytest.mark.spec("POL-07", "POL-05", "ADM-02")
def test_an_admission_that_races_an_activation_is_decided_by_the_one_in_force_at_its_place(
    made: Made,
) -> None:
    with made.open() as issuer:
        effects = [published(issuer, f"v{number}") for number in range(12)]
        first = active(issuer)
    second = closed(made)
    activated(made.profile, first)
    profile = str(made.profile)
    with Child() as one, Child() as two:
        for start in (0, 4, 8):
            one.order(made, calls=[("admit", effect) for effect in effects[start : start + 4]])
            two.order(made, calls=[("activate", profile, second), ("activate", profile, first)])
            for child in (one, two):
                child.ready()
            for child in (two, one):
                child.go()
            assert {one.said()["code"] for _each in range(4)} <= {"admitted", "denied", "ledger_unavailable"}
            assert {two.said()["code"] for _each in range(2)} <= {"activated", "nothing_to_change"}
    with made.open() as issuer:
        spans = spans_of(issuer)
    demand_one_revision(spans)
    admitted = {span["permit.revision"] for span in spans if span["permit.transition"] == "effect.admitted"}
    assert admitted <= {first}


@pytest.mark.spec("LED-08", "POL-07")
def test_a_restore_past_an_activation_serves_no_revision_until_an_owner_activates(made: Made) -> None:
    file = saved(made)
    closed(made)
    said = restored(made, file)
    assert said.more["activate"] is True
    assert "`issuer activate`" in said.say
    with pytest.raises(LedgerUnavailable) as refused:
        made.open()
    assert refused.value.reason == "revision_open"
    activated(made.profile)
    with made.open() as issuer:
        assert refund(issuer).code == "denied"
        assert demand_one_revision(spans_of(issuer))[-2] == NO_REVISION


@pytest.mark.spec("LED-08", "POL-07")
def test_a_restore_without_an_activation_since_serves_what_was_in_force(made: Made) -> None:
    file = saved(made)
    assert restored(made, file).more["activate"] is False
    with made.open() as issuer:
        assert refund(issuer).code in {"permitted", "suspended", "task_frozen"}
        assert len(demand_one_revision(spans_of(issuer))) == 1


@pytest.mark.spec("POL-07", "LED-02")
def test_old_copies_go_but_none_that_an_effect_still_rests_on(made: Made) -> None:
    places = Places(made.profile)
    with made.open() as issuer:
        first = active(issuer)
    second, needed = closed(made), {first}
    rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + "// third\n")
    third = activated(made.profile)
    forget_snapshots(places, needed, keep=1)
    assert set(stored_revisions(places)) == {first, third}
    assert second not in stored_revisions(places)


@pytest.mark.spec("POL-07", "SUR-03")
def test_people_are_told_that_a_file_is_a_draft_and_doctor_says_whether_it_could_serve(made: Made) -> None:
    asking = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-")
    asked = issuer_here(*asking, at=made.folder, stdin=b'{"order": "o-1", "amount": 1}')
    assert (asked.exit, asked.err) == (0, "")
    rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + NEVER)
    asked = issuer_here(*asking, at=made.folder, stdin=b'{"order": "o-2", "amount": 1}')
    assert asked.exit == 0
    assert asked.err.startswith("note: policies/policies.cedar differs from what is in force")
    assert issuer_here(*asking, "--json", at=made.folder, stdin=b'{"order": "o-3", "amount": 1}').err == ""
    assert "on disk these differ: policies/policies.cedar" in issuer_here("doctor", at=made.folder).out
    for path, text in ((made.folder / "policies" / "policies.cedar", STANDARD_POLICY), (made.profile, "x")):
        rewritten(path, text)
    assert "could not be activated" in issuer_here("doctor", at=made.folder).out
    told = issuer_here("activate", "--json", at=made.folder)
    assert (told.exit, told.code) == (2, "malformed")


@pytest.mark.spec("POL-07", "EFF-12")
def test_the_digest_is_that_of_every_file_that_the_profile_names(tmp_path: Path, service: Service) -> None:
    folder = tmp_path / "f0"
    folder.mkdir()
    (folder / "vendors.csv").write_text("id,iban\nacme,DE1\n", encoding="utf-8")
    registry = '[registry.vendors]\nfile = "vendors.csv"\nkey = "id"\nfields = ["iban"]\n[class.refund]'
    made = standard_issuer(folder, port=service.port, changes={"[class.refund]": registry})
    with made.open() as issuer:
        first = active(issuer)
        assert rows(issuer)[0]["files"] == ["policies/policies.cedar", "profile.toml", "vendors.csv"]
    (folder / "vendors.csv").write_text("id,iban\nacme,DE2\n", encoding="utf-8")
    second = activated(made.profile)
    with made.open() as issuer:
        assert issuer._house.profile.registries["vendors"].rows["acme"]["iban"] == "DE2"
    (folder / "vendors.csv").unlink()
    activated(made.profile, first)
    with made.open() as issuer:
        assert issuer._house.profile.registries["vendors"].rows["acme"]["iban"] == "DE1"
    assert first != second


@pytest.mark.spec("POL-07", "LED-06")
def test_a_first_revision_is_only_taken_where_there_never_was_one(made: Made) -> None:
    with made.open() as issuer:
        revision = active(issuer)
    without_guards(made.ledger, "DELETE FROM rulings")
    with pytest.raises(LedgerCorrupt):
        made.open()
    with made.open(reading=True) as issuer:
        assert [row["revision"] for row in rows(issuer)] == [revision]


@pytest.mark.spec("AUD-09")
def test_every_change_of_authority_is_told_in_order(made: Made) -> None:
    closed(made)
    with made.open(reading=True) as issuer:
        told = issuer.audit_changes()
    names = [change["name"] for change in told.more["changes"]]  # type: ignore[attr-defined]
    assert names[:3] == ["ledger.created", "sink.registered", "revision.activated"]
    assert names[3:] == ["task.opened"] * 4 + ["revision.activated"]
    assert "policies/policies.cedar" in told.more["lines"][-1]  # type: ignore[index]
