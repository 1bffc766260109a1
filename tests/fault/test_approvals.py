"""What people answer and what becomes of it: quorums, duties, lateness, races, and that admission asks again."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import EffectId, InstantMs
from tests.support.approving import NO_APPROVERS, POLICY, Office, asked_of, opened_office, waiting
from tests.support.cases import PATIENCE_S, length, small_tree, state_of, trail
from tests.support.issuers import HOUR_MS, permitted, refund
from tests.support.service import answer


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened_office(tmp_path_factory.mktemp("approvals") / "f0") as opened:
        yield opened


class Hand:
    """A clock that a test sets; it begins at the real one, since tasks are opened by it."""

    def __init__(self) -> None:
        self.at: int = now_ms()

    def __call__(self) -> InstantMs:
        return InstantMs(self.at)


@pytest.fixture
def desk(office: Office) -> Callable[[], str]:
    """Return what asks for one more effect that waits, in a task of its own."""

    def ask() -> str:
        desk.count += 1  # type: ignore[attr-defined]
        task, _root = small_tree(office.issuer, f"desk-{now_ms()}-{desk.count}")  # type: ignore[attr-defined]
        return waiting(refund(office.issuer, amount=900, task=task))

    desk.count = 0  # type: ignore[attr-defined]
    return ask


QUORUMS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "one": ("finance", [("bob", "permitted")]),
    "two": ("finance:2", [("bob", "approved"), ("carol", "permitted")]),
    "two, one of them twice": (
        "finance:2",
        [("bob", "approved"), ("bob", "nothing_to_change"), ("dan", "permitted")],
    ),
    "two groups": ("finance,stewards", [("bob", "approved"), ("erin", "permitted")]),
    "somebody of both groups fills one place": (
        "finance,stewards",
        [("carol", "approved"), ("erin", "permitted")],
    ),
    "somebody of both groups takes the place that is left": (
        "finance,stewards",
        [("carol", "approved"), ("dan", "permitted")],
    ),
    "two of one group are not one of each": (
        "finance,stewards",
        [("bob", "approved"), ("dan", "approved"), ("carol", "permitted")],
    ),
    "three": (
        "finance:2, stewards",
        [("carol", "approved"), ("erin", "approved"), ("bob", "permitted")],
    ),
}
"""What a policy asks, and who says yes in turn with which answer."""


@pytest.mark.spec("APP-03", "POL-01", "APP-01", "EFF-09")
@pytest.mark.parametrize("case", QUORUMS)
def test_different_people_fill_every_place_and_then_it_is_permitted_once(case: str, tmp_path: Path) -> None:
    approvers, turns = QUORUMS[case]
    with opened_office(tmp_path / "f0", policy=asked_of(approvers)) as office:
        effect, other = office.ask(), office.ask(50 + 600, order="o-2", task="org")
        statement = office.statement(effect)
        for place, (person, code) in enumerate(turns):
            told = office.issuer.approve(effect, office.signature(person, statement))
            assert told.code == code, (person, told)
            if place < len(turns) - 1:
                assert state_of(office.issuer, effect) == "awaiting_approval"
                assert office.issuer.commit(effect).code == "not_permitted_yet"
        assert state_of(office.issuer, other) == "awaiting_approval"
        given = [person for person, code in turns if code != "nothing_to_change"]
        record = office.issuer.show(effect).more["record"]
        assert [one["person"] for one in record["approvals"]["approved"]] == given  # type: ignore[index]
        assert record["permit"]["tier"] == "approval"  # type: ignore[index]
        office.service.then(answer(201))
        assert office.issuer.commit(effect).code == "succeeded"
        last = [one for one in trail(office.issuer) if one.state_to == "permitted"][-1]
        assert set(last.attributes["permit.approvals"]) <= set(given)  # type: ignore[arg-type]
        assert office.service.connections == 1


@pytest.mark.spec("APP-03")
@pytest.mark.parametrize(("person", "why"), [("u-ana", "subject"), ("boss", "answers_to"), ("ops", "caller")])
def test_nobody_approves_what_is_their_own_whatever_policies_say(
    person: str, why: str, office: Office, desk: Callable[[], str]
) -> None:
    effect = desk()
    start = length(office.issuer)
    no = office.approve(effect, person)
    assert (no.code, no.more["field"]) == ("forbidden", why)
    said = [one for one in trail(office.issuer, start) if "permit.refusal" in one.attributes]
    assert [one.attributes["permit.signer"] for one in said] == [person]
    assert office.decline(effect, person).code == "forbidden"
    assert state_of(office.issuer, effect) == "awaiting_approval"


@pytest.mark.spec("APP-03", "SUR-05")
def test_whom_nobody_could_answer_for_is_told_at_once(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0", policy=asked_of("finance:4")) as office:
        # bob, carol and dan are left: the subject, the actor's person and the caller are in the group as well.
        told = refund(office.issuer, amount=900)
        assert told.code == "awaiting_approval"
        assert "nobody who could is registered" in told.say
    with opened_office(tmp_path / "f1", policy=asked_of("finance:3")) as office:
        assert "nobody" not in refund(office.issuer, amount=900).say


@pytest.mark.spec("APP-05", "LED-05")
def test_a_no_ends_it_with_a_word_of_the_list_and_a_reference(
    office: Office, desk: Callable[[], str]
) -> None:
    effect = desk()
    text = office.statement(effect, decline="wrong_amount", reference="T-4711")
    signature = office.signature("carol", text)
    # The signature is over exactly this word and this reference.
    for words in (("not_agreed", "T-4711"), ("wrong_amount", "T-4712"), ("wrong_amount", None)):
        no = office.issuer.decline(effect, signature, reason=words[0], reference=words[1])
        assert (no.code, no.more["field"]) == ("signature_refused", "bad_signature")
    told = office.issuer.decline(effect, signature, reason="wrong_amount", reference="T-4711")
    assert (told.code, told.state) == ("declined_now", "declined")
    (span,) = (one for one in trail(office.issuer) if one.state_to == "declined" and told.effect)
    assert span.attributes["permit.reason"] == "wrong_amount"
    assert span.attributes["permit.reference"] == "T-4711"
    assert span.attributes["permit.signer"] == "carol"
    for late in (
        office.issuer.approve(effect, "x"),
        office.issuer.decline(effect, signature, reason="wrong_amount", reference="T-4711"),
        office.issuer.commit(effect),
    ):
        assert late.code == "declined"


@pytest.mark.spec("APP-05", "EFF-05")
@pytest.mark.parametrize(
    ("reason", "reference"),
    [("", None), ("because I say so", None), ("other", "free text"), ("other", "a\nb"), ("other", "x" * 129)],
)
def test_free_text_is_no_reason(
    reason: str, reference: str | None, office: Office, desk: Callable[[], str]
) -> None:
    effect = desk()
    assert office.issuer.statement(effect, decline=reason, reference=reference).code == "malformed"
    assert office.issuer.decline(effect, "x", reason=reason, reference=reference).code == "malformed"
    assert office.issuer.withdraw(effect, reason="because").code == "malformed"
    assert state_of(office.issuer, effect) == "awaiting_approval"


@pytest.mark.spec("APP-03", "PER-03")
def test_an_answer_at_the_exact_instant_is_late_and_ends_it_as_expired(tmp_path: Path) -> None:
    hand = Hand()
    with opened_office(tmp_path / "f0", clock=hand) as office:
        early, late = office.ask(order="o-1", task="t1"), office.ask(order="o-2", task="org")
        signatures = {one: office.signature("bob", office.statement(one)) for one in (early, late)}
        until = office.issuer._house.ledger.read(lambda view: view.effect(EffectId(late))).expires_ms  # type: ignore[union-attr]
        first = office.issuer._house.ledger.read(lambda view: view.effect(EffectId(early))).expires_ms  # type: ignore[union-attr]
        hand.at = first - 1
        told = office.issuer.approve(early, signatures[early])
        assert told.code == "permitted"
        hand.at = until
        start = length(office.issuer)
        no = office.issuer.approve(late, signatures[late])
        assert (no.code, no.state) == ("expired", "expired")
        spans = trail(office.issuer, start)
        assert [one.state_to for one in spans] == ["expired", None]
        assert spans[1].attributes["permit.signer"] == "bob"
        assert office.issuer.approve(late, signatures[late]).code == "expired"
        # The permit of the early one lived no longer than what people had signed.
        assert office.issuer.commit(early).code == "expired"
        assert office.service.connections == 0


@pytest.mark.spec("APP-03", "PER-03")
def test_nobody_s_silence_is_no_yes(tmp_path: Path) -> None:
    hand = Hand()
    with opened_office(
        tmp_path / "f0", clock=hand, changes={'lifetime = "10m"': 'lifetime = "10m"\nwait = "1h"'}
    ) as office:
        hand.at = now_ms() + 1000
        effect = office.ask()
        hand.at += HOUR_MS - 1
        assert office.issuer.show(effect).state == "awaiting_approval"
        hand.at += 1
        assert office.issuer.show(effect).state == "expired"
        assert office.issuer.wait(effect, for_ms=0).state == "expired"


@pytest.mark.spec("APP-02", "PER-03")
def test_nobody_reads_and_signs_what_is_over_already(tmp_path: Path) -> None:
    hand = Hand()
    with opened_office(tmp_path / "f0", clock=hand) as office:
        effect = office.ask()
        until = office.issuer._house.ledger.read(lambda view: view.effect(EffectId(effect))).expires_ms  # type: ignore[union-attr]
        hand.at = until - 1
        assert office.issuer.statement(effect).code == "found"
        hand.at = until
        no = office.issuer.statement(effect)
        assert (no.code, no.state, "statement" in no.more) == ("expired", "expired", False)
        assert no.say.startswith("Its time is over, and nothing was sent.")


@pytest.mark.spec("PER-03", "APP-01")
def test_a_permit_lives_as_its_class_says_from_the_yes_on_and_shows_every_cap(tmp_path: Path) -> None:
    hand = Hand()
    with opened_office(tmp_path / "f0", clock=hand) as office:
        began = hand.at = now_ms() + 1000
        effect = office.ask()
        hand.at += 5 * HOUR_MS
        assert office.approve(effect, "bob").code == "permitted"
        permit = office.issuer._house.ledger.read(lambda view: view.permit(EffectId(effect)))
        assert permit is not None
        assert permit.expires_ms == hand.at + 10 * 60_000
        assert permit.caps["approval"] == permit.caps["binding"] <= began + 24 * HOUR_MS
        hand.at = permit.expires_ms
        assert office.issuer.commit(effect).code == "expired"


@pytest.mark.spec("EFF-06", "PER-03")
def test_what_was_held_keeps_the_expiry_that_it_was_shown_with(office: Office) -> None:
    task, _root = small_tree(office.issuer, "held")
    held = refund(office.issuer, amount=900, task=task, hold=True)
    told = office.issuer.request_held(held.effect or "")
    assert (told.code, told.expires) == ("awaiting_approval", held.expires)
    assert office.approve(held.effect or "", "bob").code == "permitted"


WITHDRAWN: dict[str, Callable[[Office, str], str]] = {
    "prepared": lambda o, t: refund(o.issuer, amount=300, task=t, hold=True).effect or "",
    "awaiting_approval": lambda o, t: waiting(refund(o.issuer, amount=900, task=t)),
    "permitted": lambda o, t: permitted(refund(o.issuer, amount=300, task=t)),
}


@pytest.mark.spec("APP-05", "BUD-06")
@pytest.mark.parametrize("state", WITHDRAWN)
def test_a_caller_takes_back_its_own_before_it_is_admitted(state: str, office: Office) -> None:
    task, _root = small_tree(office.issuer, f"withdraw-{state}")
    effect = WITHDRAWN[state](office, task)
    assert state_of(office.issuer, effect) == state
    assert office.as_agent().withdraw(effect).code == "not_found"
    told = office.issuer.withdraw(effect, reason="duplicate")
    assert (told.code, told.state) == ("withdrawn_now", "withdrawn")
    assert office.issuer.withdraw(effect).code == "nothing_to_change"
    assert office.issuer.commit(effect).code == "withdrawn"
    assert office.issuer.approve(effect, "x").code == "withdrawn"
    own = office.as_agent()
    theirs = refund(own, amount=300, task=task, order="o-9").effect or ""
    assert own.withdraw(theirs).code == "withdrawn_now"


@pytest.mark.spec("APP-05", "ADM-05")
def test_what_was_sent_cannot_be_taken_back(office: Office) -> None:
    task, _root = small_tree(office.issuer, "sent")
    effect = permitted(refund(office.issuer, task=task))
    office.service.then(answer(201))
    assert office.issuer.commit(effect).code == "succeeded"
    no = office.issuer.withdraw(effect)
    assert (no.code, no.state) == ("too_late", "succeeded")


@pytest.mark.spec("POL-05", "APP-04")
def test_a_policy_that_asks_nobody_any_more_refuses_the_yes(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office:
        effect = office.ask()
        signature = office.signature("bob", office.statement(effect))
        for text, code in (
            (POLICY.replace("<= 100000", "<= 600"), "denied"),
            (POLICY.replace(NO_APPROVERS, "when { principal == resource.subject };"), "forbidden"),
        ):
            office.put(office.policies, text)
            no = office.issuer.approve(effect, signature)
            assert no.code == code, text
            assert state_of(office.issuer, effect) == "awaiting_approval"
        # One that asks others is satisfied by those as well, and not without whom it asked first.
        office.put(office.policies, asked_of("stewards"))
        assert office.approve(effect, "erin").code == "approved"
        assert office.issuer.approve(effect, signature).code == "permitted"


@pytest.mark.spec("APP-04", "BUD-05")
def test_a_closed_task_and_a_used_budget_stop_the_last_yes(office: Office) -> None:
    task, root = small_tree(office.issuer, "closed")
    effect = waiting(refund(office.issuer, amount=900, task=task))
    signature = office.signature("bob", office.statement(effect))
    office.issuer.task_lower(task, budget={"USD.cent": 100})
    assert office.issuer.approve(effect, signature).code == "budget_exceeded"
    office.issuer.task_freeze(root)
    assert office.issuer.approve(effect, signature).code == "task_frozen"
    office.issuer.task_thaw(root)
    office.issuer.task_close(root)
    assert office.issuer.approve(effect, signature).code == "task_closed"
    assert state_of(office.issuer, effect) == "awaiting_approval"


@pytest.mark.spec("APP-01", "APP-03", "ADM-04")
def test_two_answers_at_once_make_one_permit(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office, office.made.open() as second:
        effect = office.ask()
        statement = office.statement(effect)
        barrier = threading.Barrier(4)
        answers: list[Answer] = []

        def say(person: str, turn: int) -> None:
            signature = office.signature(person, statement)
            barrier.wait(PATIENCE_S)
            answers.append((office.issuer if turn % 2 else second).approve(effect, signature))

        threads = [
            threading.Thread(target=say, args=(person, turn))
            for turn, person in enumerate(("bob", "bob", "carol", "dan"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(one.code for one in answers) == ["nothing_to_change"] * 3 + ["permitted"]
        given = office.issuer._house.ledger.read(lambda view: view.approvals(EffectId(effect)))
        assert len(given) == 1


@pytest.mark.spec("APP-03", "PER-03")
def test_a_yes_that_races_with_its_end_comes_before_it_or_not_at_all(tmp_path: Path) -> None:
    hand = Hand()
    with opened_office(tmp_path / "f0", clock=hand) as office, office.made.open(clock=hand) as second:
        hand.at = now_ms() + 1000
        task, _root = small_tree(office.issuer, "races", task=9_000)
        effects = [waiting(refund(office.issuer, amount=900, task=task, order=f"o-{n}")) for n in range(4)]
        signatures = [office.signature("bob", office.statement(effect)) for effect in effects]
        found = office.issuer._house.ledger.read(lambda view: view.effect(EffectId(effects[0])))
        assert found is not None
        hand.at = found.expires_ms
        barrier = threading.Barrier(2)
        answers: list[Answer] = []

        def say() -> None:
            barrier.wait(PATIENCE_S)
            answers.extend(
                office.issuer.approve(effect, by) for effect, by in zip(effects, signatures, strict=True)
            )

        def look() -> None:
            barrier.wait(PATIENCE_S)
            second.list()

        threads = [threading.Thread(target=say), threading.Thread(target=look)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert [one.code for one in answers] == ["expired"] * 4
        assert [state_of(office.issuer, effect) for effect in effects] == ["expired"] * 4


@pytest.mark.spec("OPR-01", "ADM-03")
def test_after_the_last_yes_the_issuer_sends_where_the_owner_says_so(tmp_path: Path) -> None:
    changes = {'once = "Idempotency-Key" }': 'once = "Idempotency-Key" }\nafter_approval = "commit"'}
    with opened_office(tmp_path / "f0", policy=asked_of("finance:2"), changes=changes) as office:
        effect = office.ask()
        assert office.approve(effect, "bob").code == "approved"
        assert office.service.connections == 0
        office.service.then(answer(201))
        told = office.approve(effect, "carol")
        assert (told.code, told.state, told.effect) == ("succeeded", "succeeded", effect)
        admitted = next(one for one in trail(office.issuer) if one.state_to == "admitted")
        assert admitted.attributes["permit.caller"] == "ops"
        assert office.service.connections == 1


@pytest.mark.spec("EFF-10", "LED-03", "APP-02", "SEC-01")
def test_a_statement_shows_what_is_sensitive_only_once_that_is_on_record(tmp_path: Path) -> None:
    changes = {
        "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
        'body = { order = "{order}",': 'body = { card = "{card}", order = "{order}",',
    }
    with opened_office(tmp_path / "f0", changes=changes) as office:
        payload = {"order": "o-1", "amount": 900, "note": "for ana", "card": "CANARY-4711"}
        effect = waiting(office.issuer.request("refund", payload, task="t1", actor="agent-7"))
        start = length(office.issuer)
        statement = office.statement(effect)
        assert b'payload.note: "for ana"' in statement
        assert b"CANARY" not in statement
        (span,) = trail(office.issuer, start)
        assert span.attributes["permit.fields"] == ("note",)
        assert span.attributes["permit.reason"] == "approval"
        assert office.issuer.approve(effect, office.signature("bob", statement)).code == "permitted"
        office.service.then(answer(201))
        assert office.issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("EFF-09", "APP-03")
def test_the_list_says_what_waits_for_whom_and_who_has_said_yes(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0", policy=asked_of("finance:2")) as office:
        effect = office.ask()
        office.approve(effect, "bob")
        row = office.issuer.approvals().more["waiting"][0]  # type: ignore[index]
        assert row["effect"] == effect
        assert (row["approvers"], [one["person"] for one in row["approved"]]) == ({"finance": 2}, ["bob"])
        assert (row["actor"], row["subject"], row["caller"], row["task"]) == ("agent-7", "u-ana", "ops", "t1")
        office.approve(effect, "carol")
        assert office.issuer.approvals().more["waiting"] == []


@pytest.mark.spec("APP-02", "LED-06")
def test_a_statement_is_made_again_byte_for_byte_by_another_process_later(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office:
        effect = office.ask()
        first = office.statement(effect)
        with office.made.open() as second:
            again = second.statement(effect).more["statement"]
        assert str(again).encode() == first == office.statement(effect)


@pytest.mark.spec("APP-01", "APP-03")
def test_a_yes_of_another_ledger_is_none_here(tmp_path: Path) -> None:
    with opened_office(tmp_path / "f0") as office, opened_office(tmp_path / "f1") as foreign:
        effect, theirs = office.ask(), foreign.ask()
        # The same key, registered in both.
        bobs = foreign.statement(theirs)
        no = office.issuer.approve(effect, office.signature("bob", bobs))
        assert (no.code, no.more["field"]) == ("signature_refused", "bad_signature")
        assert office.issuer.approve(theirs, office.signature("bob", bobs)).code == "not_found"


@pytest.mark.spec("APP-05", "ADM-05")
def test_a_no_is_taken_also_while_everything_is_stopped(office: Office, desk: Callable[[], str]) -> None:
    effect = desk()
    yes = office.signature("bob", office.statement(effect))
    assert office.issuer.freeze().code == "suspended_now"
    assert office.issuer.approve(effect, yes).code == "suspended"
    assert office.decline(effect, "bob").code == "declined_now"
    assert office.issuer.thaw().code == "resumed"
