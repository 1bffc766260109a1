"""Stops as attacks: what is frozen or revoked is not admitted, whoever holds the permit; no thaw revives the void."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.caller import Caller, CallerKind
from issuer.commands.stop_words import Reason, ruling_step
from issuer.flow.stops import VOIDED_MAX, directory_now
from issuer.house import Visit
from issuer.wire import Answer
from ledger.authority import Ruling, RulingKind, StopKind, stop_name
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from ledger.transitions import TransitionName
from tests.support.cases import NOTHING, Clock, books, length, refusals, state_of, trail
from tests.support.committing import Job
from tests.support.issuers import STANDARD_POLICY, Made, open_task, permitted, refund, standard_issuer
from tests.support.kills import TRANSACTION, Nursery
from tests.support.ledgers import without_guards
from tests.support.revised import activated
from tests.support.service import Service, answer

NAMED = [
    ("all", None),
    ("person", "u-ana"),
    ("actor", "agent-7"),
    ("operation", "refund"),
    ("class", "refund"),
]

pytestmark = pytest.mark.spec("ADM-05", "ADM-01", "POL-05")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.fixture
def issuer(made: Made) -> Iterator[Issuer]:
    with made.open() as opened:
        yield opened


@pytest.fixture
def operator(made: Made) -> Iterator[Issuer]:
    """Another process's view: what the host's one holds in memory is not shared with it."""
    with made.open() as opened:
        yield opened


def voided(told: Answer) -> tuple[str, object, object]:
    return told.code, told.more.get("voided"), told.more.get("effects")


# ------------------------------------------------------------------------------------ freezing


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_while_frozen_nothing_is_issued_or_admitted_and_after_the_thaw_the_permit_is_used(
    issuer: Issuer, operator: Issuer, service: Service, kind: str, name: str | None
) -> None:
    service.then(answer(201))
    effect = permitted(refund(issuer))
    held = issuer.request("refund", {"order": "o-h", "amount": 1}, task="t1", actor="agent-7", hold=True)
    assert held.effect is not None
    frozen = operator.freeze(kind, name, reason="compromised")
    stop = kind if name is None else f"{kind}:{name}"
    assert (frozen.code, frozen.more["stop"]) == ("suspended_now", stop)
    for no in (issuer.commit(effect), refund(issuer, order="o-2"), issuer.request_held(held.effect)):
        assert (no.code, no.retryable, no.more["field"], no.more["level"]) == ("suspended", True, kind, stop)
    assert (state_of(issuer, effect), state_of(issuer, held.effect)) == ("permitted", "prepared")
    assert books(issuer) == dict.fromkeys(("t1", "org"), NOTHING)
    assert service.connections == 0
    assert operator.freeze(kind, name).code == "nothing_to_change"
    assert operator.thaw(kind, name).code == "resumed"
    assert operator.thaw(kind, name).code == "nothing_to_change"
    assert issuer.commit(effect).code == "succeeded"
    assert len(service.effects) == 1


@pytest.mark.spec("EFF-06")
def test_another_actor_operation_or_person_is_not_stopped(issuer: Issuer, service: Service) -> None:
    service.then(answer(201))
    for kind, name in (("actor", "agent-8"), ("operation", "publish")):
        assert issuer.freeze(kind, name).code == "suspended_now"
    assert issuer.commit(permitted(refund(issuer))).code == "succeeded"


def test_a_thawed_name_stays_stopped_by_a_wider_freeze_and_the_answer_says_so(issuer: Issuer) -> None:
    issuer.freeze()
    issuer.freeze("actor", "agent-7")
    told = issuer.thaw("actor", "agent-7")
    assert (told.code, told.more["stopped"]) == ("resumed", ["all"])
    assert "all" in told.say
    assert refund(issuer).code == "suspended"


def test_suspending_is_freezing_of_a_person_or_an_actor_and_of_nothing_else(issuer: Issuer) -> None:
    assert issuer.suspend("actor", "agent-7").code == "suspended_now"
    assert refund(issuer).more["level"] == "actor:agent-7"
    assert issuer.resume("actor", "agent-7").code == "resumed"
    assert issuer.suspend("person", "u-ana").code == "suspended_now"
    assert refund(issuer).more["level"] == "person:u-ana"
    assert issuer.resume("person", "u-ana").code == "resumed"
    assert issuer.suspend("class", "refund").code == "malformed"
    permitted(refund(issuer))


def test_a_freeze_of_a_task_is_the_task_s_own(issuer: Issuer) -> None:
    assert issuer.freeze("task", "t1").code == "frozen"
    assert refund(issuer).code == "task_frozen"
    assert issuer.thaw("task", "t1").code == "thawed"
    permitted(refund(issuer))


def rows(issuer: Issuer) -> Any:
    return issuer.list().more["effects"]


@pytest.mark.spec("EFF-09", "SEC-04")
def test_show_and_list_say_what_stops_an_effect(issuer: Issuer) -> None:
    effect = permitted(refund(issuer))
    issuer.freeze("class", "refund")
    issuer.suspend("actor", "agent-8")
    record: Any = issuer.show(effect).more["record"]
    (row,) = rows(issuer)
    assert record["stops"] == row["stops"] == ["class:refund"]
    issuer.thaw("class", "refund")
    (row,) = rows(issuer)
    assert "stops" not in row


@pytest.mark.spec("SEC-02", "SEC-04")
def test_a_host_that_is_stopped_stops_what_it_asked_for_and_of_a_stopped_owner_only_the_kind_is_told(
    tmp_path: Path, service: Service
) -> None:
    people = 'u-ana = { roles = ["owner", "operator"],'
    host = '[host]\nagents = { actors = ["agent-7"], subjects = ["u-ana"] }\n[class.refund]'
    changes = {people: f"u-cy = {{}}\n{people}", "[class.refund]": host}
    changes['agent-7 = { answers_to = "u-ana"'] = 'agent-7 = { answers_to = "u-cy"'
    made = standard_issuer(tmp_path / "f2", port=service.port, changes=changes)
    with made.open() as owner:
        credential = Caller(name="host:agents", account="token", roles=(), kind=CallerKind.HOST)
        agent = Issuer(owner._house, credential, lambda: owner._house)
        effect = permitted(refund(agent))
        assert owner.freeze("host", "agents").code == "suspended_now"
        assert agent.commit(effect).code == "suspended"
        permitted(refund(owner))
        assert owner.thaw("host", "agents").code == "resumed"
        assert owner.suspend("person", "u-cy").code == "suspended_now"
        said = agent.commit(effect)
        assert (said.code, said.more["field"], said.more.get("level")) == ("suspended", "person", None)
        assert "u-cy" not in said.say
        assert owner.revoke("host", "agents").more["effects"] == [effect]
        owner.resume("person", "u-cy")
        assert agent.commit(effect).code == "revoked"
    assert service.connections == 0


@pytest.mark.spec("SEC-02")
@pytest.mark.parametrize("kind", [StopKind.HOST, StopKind.ACTOR, StopKind.PERSON])
def test_revoking_whoever_calls_voids_the_credential_for_good(
    tmp_path: Path, service: Service, kind: StopKind
) -> None:
    host = '[host]\nagents = { actors = ["agent-7"], subjects = ["u-ana"] }\n[class.refund]'
    made = standard_issuer(tmp_path / "f3", port=service.port, changes={"[class.refund]": host})
    name = {StopKind.HOST: "agents", StopKind.ACTOR: "agent-7", StopKind.PERSON: "u-ana"}[kind]
    with made.open() as issuer:
        whose = stop_name(kind, name)

        def issue(_view: View, now: InstantMs) -> Verdict[None]:
            visit = Visit(house=issuer._house, caller=issuer._caller, command="test")
            token = Ruling(kind=RulingKind.TOKEN, name=whose, value="0" * 64, since_ms=now)
            said = {"credential": whose}
            return Verdict(
                value=None, steps=(ruling_step(visit, TransitionName.CREDENTIAL_ISSUED, token, said),)
            )

        issuer._house.ledger.transact(issue)
        issuer.revoke(kind, name)
        issuer.thaw(kind, name)
        ruling = issuer._house.ledger.read(lambda view: view.ruling(RulingKind.TOKEN, whose))
        assert ruling is not None
        assert ruling.value == "revoked"


@pytest.mark.spec("POL-05")
def test_policies_see_who_is_suspended(tmp_path: Path) -> None:
    """A suspended colleague is a fact for policies, though nothing of the effect itself is stopped."""
    policy = (
        STANDARD_POLICY
        + """
@id("no-suspended-actors")
forbid (principal is Actor, action, resource) when { principal.answers_to.suspended };
"""
    )
    made = standard_issuer(tmp_path / "f4", port=9, policy=policy)
    with made.open() as issuer:
        permitted(refund(issuer))
        house = issuer._house

        def suspended(view: View) -> list[str]:
            directory = directory_now(house, view)
            people = [one.name for one in directory.people if one.suspended]
            return people + [one.name for one in directory.actors if one.suspended]

        assert house.ledger.read(suspended) == []
        issuer.suspend("person", "u-ana")
        issuer.revoke("actor", "agent-8")
        assert house.ledger.read(suspended) == ["u-ana", "agent-8"]
        issuer.resume("person", "u-ana")
        issuer.thaw("actor", "agent-8")
        assert house.ledger.read(lambda view: directory_now(house, view)) is house.directory
        permitted(refund(issuer, order="o-2"))


# ------------------------------------------------------------------------------------ revoking


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_a_revocation_voids_for_good_what_was_prepared_and_a_thaw_lets_new_ones_be_made(
    issuer: Issuer, operator: Issuer, service: Service, kind: str, name: str | None
) -> None:
    service.then(answer(201))
    effect = permitted(refund(issuer))
    waiting = refund(issuer, order="o-w", amount=900)
    assert waiting.code == "awaiting_approval"
    told = operator.revoke(kind, name, reason="left")
    assert voided(told) == ("revoked_now", 2, [effect, waiting.effect])
    for each in (effect, str(waiting.effect)):
        assert (issuer.commit(each).code, state_of(issuer, each)) == ("revoked", "revoked")
    assert refund(issuer, order="o-2").code == "suspended"
    assert operator.revoke(kind, name).code == "nothing_to_change"
    assert operator.thaw(kind, name).code == "resumed"
    assert issuer.commit(effect).code == "revoked"
    assert service.connections == 0
    assert issuer.commit(permitted(refund(issuer, order="o-3"))).code == "succeeded"
    stop = kind if name is None else f"{kind}:{name}"
    ended = [one.attributes for one in trail(issuer) if one.name == "effect.revoked"]
    assert [(one["permit.stop"], one["permit.reason"]) for one in ended] == [(stop, "left")] * 2


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


def killed_after_the_ruling(nursery: Nursery, made: Made, *arguments: object) -> None:
    """Revoke in a process that dies between its own transaction and the first batch."""
    named = dict(zip(("kind", "name"), arguments, strict=True))
    job = Job(
        profile=str(made.profile), command="revoke", arguments=named, at=TRANSACTION.index("committed") + 1
    )
    with nursery.start(job) as child:
        assert child.ended() == -signal.SIGKILL


@pytest.mark.spec("BUD-06", "REP-02")
def test_what_a_killed_revocation_left_is_void_and_the_next_touch_ends_it(
    nursery: Nursery, issuer: Issuer, made: Made, service: Service
) -> None:
    effects = [permitted(refund(issuer, order=f"o-{number}", amount=1)) for number in range(3)]
    killed_after_the_ruling(nursery, made, "actor", "agent-7")
    assert {state_of(issuer, effect) for effect in effects} == {"permitted"}
    # Whoever commits one of them finds it void under the lock, without any sweep before.
    assert (issuer.commit(effects[0]).code, state_of(issuer, effects[0])) == ("revoked", "revoked")
    assert {state_of(issuer, effect) for effect in effects[1:]} == {"permitted"}
    issuer.list()
    assert {state_of(issuer, effect) for effect in effects} == {"revoked"}
    ended = [one.attributes["permit.reason"] for one in trail(issuer) if one.name == "effect.revoked"]
    assert ended == ["void"] * 3
    assert service.connections == 0


def test_what_was_voided_stays_void_through_a_later_thaw_freeze_and_thaw(
    nursery: Nursery, issuer: Issuer, made: Made, service: Service
) -> None:
    effect = permitted(refund(issuer))
    killed_after_the_ruling(nursery, made, "actor", "agent-7")
    for _again in range(2):
        issuer.thaw("actor", "agent-7")
        issuer.freeze("actor", "agent-7")
    issuer.thaw("actor", "agent-7")
    assert issuer.commit(effect).code == "revoked"
    assert service.connections == 0


def test_the_revocation_itself_said_again_ends_what_a_kill_left_in_a_task(
    nursery: Nursery, issuer: Issuer, made: Made
) -> None:
    effect = permitted(refund(issuer))
    killed_after_the_ruling(nursery, made, "task", "org")
    assert (state_of(issuer, effect), issuer.commit(effect).code) == ("permitted", "task_closed")
    assert voided(issuer.revoke("task", "org")) == ("revoked_now", 1, [effect])
    assert issuer.revoke("task", "org").code == "nothing_to_change"


@pytest.mark.spec("BUD-05", "BUD-06")
def test_a_revoked_task_is_closed_for_good_with_all_below_and_gives_its_slots_back(issuer: Issuer) -> None:
    whom = ["agent-7"]
    open_task(issuer, "few", budget={"USD.cent": 100}, subject="u-ana", actors=whom, classes={"refund": 1})
    open_task(issuer, "few.a", parent="few", budget={"USD.cent": "inherit"})
    open_task(issuer, "few.b", parent="few", budget={"USD.cent": "inherit"})
    effect = permitted(refund(issuer, task="few.a", amount=1))
    assert refund(issuer, order="o-2", task="few.b", amount=1).code == "slots_exhausted"
    assert voided(issuer.revoke("task", "few.a")) == ("revoked_now", 1, [effect])
    assert refund(issuer, order="o-3", task="few.a", amount=1).code == "task_closed"
    assert issuer.thaw("task", "few.a").code == "task_closed"
    other = permitted(refund(issuer, order="o-4", task="few.b", amount=1))
    assert voided(issuer.revoke("task", "few")) == ("revoked_now", 1, [other])
    assert refund(issuer, order="o-5", task="few.b", amount=1).code == "task_closed"


@pytest.mark.spec("BUD-06")
def test_a_revoked_permit_gives_the_slot_and_the_place_in_the_day_back(made: Made, service: Service) -> None:
    assert service.connections == 0
    text = made.profile.read_text("utf-8")
    made.profile.write_text(
        text.replace("per_task = { permits = 100 }", "per_task = { permits = 1 }"), "utf-8"
    )
    activated(made.profile)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        assert refund(issuer, order="o-2").code == "awaiting_approval"
        permit = issuer.show(effect).more["record"]["permit"]["id"]  # type: ignore[index]
        told = issuer.revoke("permit", permit, reason="mistaken")
        assert (told.code, told.effect, told.state) == ("revoked_now", effect, "revoked")
        assert issuer.revoke("effect", effect).code == "nothing_to_change"
        permitted(refund(issuer, order="o-3"))


def test_batches_end_every_pending_effect_whatever_their_number(issuer: Issuer) -> None:
    count = 2 * VOIDED_MAX + 1
    open_task(issuer, "many", budget={"USD.cent": 100}, subject="u-ana", actors=["agent-8"])
    for number in range(count):
        asked = {"order": f"m-{number}", "amount": 1}
        assert issuer.request("refund", asked, task="many", actor="agent-8", hold=True).code == "prepared"
    before = length(issuer)
    told = issuer.revoke("actor", "agent-8")
    assert (told.more["voided"], len(told.more["effects"])) == (count, 100)  # type: ignore[arg-type]
    assert length(issuer) == before + 1 + count


def test_an_effect_that_was_prepared_in_the_future_of_an_accepted_clock_is_void_as_well(
    tmp_path: Path, service: Service
) -> None:
    """As far ahead as accepting the clock leaves what was prepared alone."""
    clock = Clock()
    made = standard_issuer(tmp_path / "f1", port=service.port)
    with made.open(clock=clock) as issuer:
        clock.ahead_ms = CLOCK_BACKWARD_TOLERANCE_MS - 100
        effect = permitted(refund(issuer))
        clock.ahead_ms = 0
        assert issuer.clock_accept().code == "accepted"
        issuer.revoke("actor", "agent-7")
        issuer.thaw("actor", "agent-7")
        assert (issuer.commit(effect).code, state_of(issuer, effect)) == ("revoked", "revoked")
    assert service.connections == 0


@pytest.mark.spec("ADM-05", "PER-03")
def test_a_second_revocation_takes_nothing_back_of_the_first_whatever_the_clock_says(
    tmp_path: Path, service: Service
) -> None:
    clock = Clock()
    made = standard_issuer(tmp_path / "f1", port=service.port)
    with made.open(clock=clock) as issuer:
        clock.ahead_ms = CLOCK_BACKWARD_TOLERANCE_MS - 100
        issuer.revoke("person", "u-ana")
        first = issuer._house.ledger.read(lambda view: view.ruling(RulingKind.STOP, "person:u-ana"))
        clock.ahead_ms = 0
        assert issuer.clock_accept().code == "accepted"
        issuer.thaw("person", "u-ana")
        issuer.revoke("person", "u-ana")
        second = issuer._house.ledger.read(lambda view: view.ruling(RulingKind.STOP, "person:u-ana"))
    assert first is not None
    assert second is not None
    assert second.since_ms < first.since_ms
    assert second.voids_until_ms == first.voids_until_ms


# ------------------------------------------------------------------------------------ what cannot be had


@pytest.mark.spec("SEC-02")
@pytest.mark.parametrize("kind", [CallerKind.HOST, CallerKind.ACTOR])
def test_no_agent_stops_or_thaws_anything(issuer: Issuer, kind: CallerKind) -> None:
    effect = permitted(refund(issuer))
    issuer.freeze("class", "refund")
    agent = Issuer(
        issuer._house,
        Caller(name="agent-7", account="token", roles=("owner",), kind=kind),
        lambda: issuer._house,
    )
    acts = [
        agent.revoke("effect", effect),
        agent.revoke("all"),
        agent.revoke("task", "org"),
        agent.freeze(),
        agent.thaw("class", "refund"),
        agent.suspend("person", "u-ana"),
        agent.resume("actor", "agent-7"),
    ]
    assert {(one.code, one.more["field"]) for one in acts} == {("forbidden", "caller")}
    assert state_of(issuer, effect) == "permitted"
    assert refund(issuer, order="o-2").code == "suspended"
    assert [code for code, _field, _level in refusals(issuer)].count("forbidden") == len(acts)


@pytest.mark.spec("SUR-02")
@pytest.mark.parametrize(
    ("arguments", "code", "field"),
    [
        (("actor", "agent-9"), "unknown_reference", "actor"),
        (("person", "agent-7"), "unknown_reference", "person"),
        (("class", "refunds"), "unknown_reference", "class"),
        (("operation", ""), "malformed", "name"),
        (("host", None), "malformed", "name"),
        (("all", "refund"), "malformed", "name"),
        (("everything", "x"), "malformed", "kind"),
        (("key", "SHA256:short"), "unknown_reference", "key"),
        (("task", "t9"), "unknown_reference", "task"),
        (("permit", "pmt_" + "0" * 32), "not_found", None),
        (("effect", "eff_" + "0" * 32), "not_found", None),
        (("effect", "\ud800"), "not_found", None),
        (("approval", "eff_" + "0" * 32), "malformed", "name"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(
    issuer: Issuer, arguments: tuple[str, str | None], code: str, field: str | None
) -> None:
    said = issuer.revoke(*arguments)
    assert (said.code, said.more.get("field")) == (code, field)
    assert issuer._house.ledger.read(lambda view: view.rulings(RulingKind.STOP)) == []


def test_a_near_name_is_told_and_a_reason_is_a_word_of_the_list(issuer: Issuer) -> None:
    assert "agent-7" in issuer.freeze("actor", "agent-77").say
    assert issuer.freeze("actor", "agent-7", reason="because I say so").code == "malformed"
    for reason in Reason:
        assert issuer.freeze("actor", "agent-7", reason=reason).code == "suspended_now"
        assert issuer.thaw("actor", "agent-7", reason=reason).code == "resumed"
    assert [one.attributes["permit.reason"] for one in trail(issuer) if one.name == "stop.frozen"] == [
        *Reason
    ]


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize("edit", ["DELETE FROM rulings", "UPDATE rulings SET value = 'open'"])
def test_a_stop_that_was_taken_away_without_the_keys_is_noticed_by_an_admission(
    issuer: Issuer, made: Made, service: Service, edit: str
) -> None:
    effect = permitted(refund(issuer))
    issuer.freeze("actor", "agent-7")
    without_guards(made.ledger, edit)
    assert issuer.commit(effect).code == "ledger_unavailable"
    assert refund(issuer, order="o-2").code == "ledger_unavailable"
    assert service.connections == 0


@pytest.mark.spec("APP-01")
def test_a_revoked_key_is_revoked_once_and_for_ever(issuer: Issuer) -> None:
    key = "SHA256:" + "A" * 43
    told = issuer.revoke("key", key, reason="compromised")
    assert (told.code, told.more["stop"], told.more["voided"]) == ("revoked_now", f"key:{key}", 0)
    assert issuer.revoke("key", key).code == "nothing_to_change"
    assert issuer.thaw("key", key).code == "malformed"
    ruling = issuer._house.ledger.read(lambda view: view.ruling(RulingKind.KEY, key))
    assert ruling is not None
    assert ruling.value == "revoked"
    # Of a person without a registered key nothing can be revoked, and that is said.
    assert issuer.revoke("key", "u-ana").code == "nothing_to_change"
