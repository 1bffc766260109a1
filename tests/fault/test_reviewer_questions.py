"""What reviewers ask, answered on a history of real commands, and held against an oracle that reads every span."""

import csv
import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from audit.otlp import bodies_in_json
from issuer import Issuer
from issuer.amounts import amount_text
from issuer.clock import instant_text
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.reviewing import (
    MINUTE_MS,
    History,
    Seen,
    amounts_of,
    denied_then_done_of,
    history,
    those,
    unused_of,
    whole_trail,
)
from tests.support.service import Service
from tests.support.ssh import needs_ssh_keygen

pytestmark = needs_ssh_keygen
LOOKS = {"observed", "effect.content_shown", "audit.exported"}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with history(tmp_path_factory.mktemp("reviewed") / "f0") as made:
        yield made


def rows(told: Answer, named: str = "rows") -> list[dict[str, Any]]:
    assert told.code == "found", told
    found = told.more[named]
    assert isinstance(found, list)
    return found


def sequences(told: Answer, named: str = "rows") -> list[int]:
    return [row["sequence"] for row in rows(told, named)]


QUERIES: dict[str, tuple[dict[str, Any], Callable[[Seen], bool]]] = {
    "actor": ({"actor": "agent-8"}, lambda one: one["actor"] == "agent-8"),
    "subject": ({"subject": "u-ana"}, lambda one: one["subject"] == "u-ana"),
    "operation": ({"operation": "refund"}, lambda one: one["operation"] == "refund"),
    "resource": ({"resource": "o-8"}, lambda one: one["resource.id"] == "o-8"),
    "resource with its type": ({"resource": 'Order::"o-8"'}, lambda one: one["resource.id"] == "o-8"),
    "resource of another type": ({"resource": 'Release::"o-8"'}, lambda _one: False),
    "state": ({"state": "succeeded"}, lambda one: one["state.to"] == "succeeded"),
    "permitted": ({"decision": "permitted"}, lambda one: one.name == "effect.permitted"),
    "denied": ({"decision": "denied"}, lambda one: one.name == "effect.denied"),
    "refused": ({"decision": "refused"}, lambda one: one.name == "refused"),
    "declined": ({"decision": "declined"}, lambda one: one.name == "effect.declined"),
    "policy": ({"policy": "small-refunds"}, lambda one: "small-refunds" in (one["policy.ids"] or ())),
    "approver": (
        {"approver": "bob"},
        lambda one: one["signer"] == "bob" and one.name in {"effect.approved", "effect.declined"},
    ),
    "name": ({"name": "effect.admitted"}, lambda one: one.name == "effect.admitted"),
    "tier": ({"tier": "approval"}, lambda one: one["tier"] == "approval"),
    "two things": (
        {"actor": "agent-7", "state": "admitted"},
        lambda one: one["actor"] == "agent-7" and one["state.to"] == "admitted",
    ),
    "nobody": ({"actor": "nobody"}, lambda _one: False),
}


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("name", QUERIES)
def test_each_selection_finds_what_reading_every_span_finds(lived: History, name: str) -> None:
    asked, wanted = QUERIES[name]
    expected = those(whole_trail(lived.issuer), wanted)
    assert sequences(lived.issuer.audit_query(**asked)) == expected
    assert sequences(lived.issuer.audit_query(newest=True, **asked)) == expected[::-1]


@pytest.mark.spec("AUD-06")
def test_a_task_is_named_by_name_or_id_and_tells_all_that_was_done_in_it(lived: History) -> None:
    issuer = lived.issuer
    opened = [one for one in whole_trail(issuer) if one["task.name"] == "later"]
    task = opened[0]["task.id"]
    expected = those(whole_trail(issuer), lambda one: one["task.id"] == task)
    assert len(expected) > 2
    assert sequences(issuer.audit_query(task="later")) == expected
    assert sequences(issuer.audit_query(task=task)) == expected
    assert sequences(issuer.timeline(task="later")) == expected
    assert issuer.audit_query(task="no-such-task").code == "unknown_reference"


@pytest.mark.spec("AUD-05", "AUD-06")
def test_an_invocation_tells_its_own_story_and_that_of_its_effects(lived: History) -> None:
    issuer = lived.issuer
    deadline = lived.clock() + MINUTE_MS
    invocation = str(issuer.invocation_open("later", "agent-7", deadline).more["invocation"]["id"])  # type: ignore[index,arg-type]
    refund(issuer, order="i-1", amount=10, task="later", invocation=invocation)
    issuer.invocation_cancel(invocation)
    expected = those(whole_trail(issuer), lambda one: one["invocation.id"] == invocation)
    assert len(expected) > 3
    assert sequences(issuer.timeline(invocation=invocation)) == expected
    assert sequences(issuer.timeline(invocation=invocation, newest=True, limit=2)) == expected[::-1][:2]
    lived.clock.ahead_ms += 10
    until = instant_text(lived.clock())
    lived.clock.ahead_ms += 10
    assert sequences(issuer.timeline(invocation=invocation, until=until)) == expected
    assert sequences(issuer.timeline(invocation=invocation, since=until)) == [], (
        "a period counts here as well"
    )
    assert issuer.timeline(invocation="inv_" + "0" * 32).code == "unknown_reference"
    assert issuer.timeline(invocation="x' OR 1").code == "unknown_reference"


@pytest.mark.spec("AUD-06", "EFF-05")
def test_a_period_begins_at_its_first_instant_and_ends_before_its_last(lived: History) -> None:
    issuer = lived.issuer
    trail = whole_trail(issuer)
    middle = trail[len(trail) // 2]
    at = issuer.audit_query(limit=10_000).more["rows"][len(trail) // 2]["at"]  # type: ignore[index]
    since = sequences(issuer.audit_query(since=at, limit=10_000))
    until = sequences(issuer.audit_query(until=at, limit=10_000))
    assert [one.sequence for one in trail if one.at_ms < middle.at_ms] == until
    assert [one.sequence for one in trail if one.at_ms >= middle.at_ms] == since[: len(trail) - len(until)]
    assert issuer.audit_query(since="2026-12-01T09:00:00").code == "malformed", "a time without an offset"
    assert issuer.audit_query(since="someday").more["field"] == "since"


REFUSED: dict[str, dict[str, Any]] = {
    "limit": {"limit": 0},
    "after": {"after": -1},
    "state": {"state": "lost"},
    "decision": {"decision": "maybe"},
    "name": {"name": "effect.invented"},
    "tier": {"tier": "none"},
    "effect": {"effect": "o-1"},
    "format": {"form": "xml"},
}


@pytest.mark.spec("AUD-06", "SUR-02")
@pytest.mark.parametrize("field", REFUSED)
def test_what_is_no_question_is_refused_and_never_answered_with_nothing(lived: History, field: str) -> None:
    told = lived.issuer.audit_query(**REFUSED[field])
    assert (told.code, told.more["field"]) == ("malformed", field)


@pytest.mark.spec("AUD-06")
def test_pages_neither_repeat_nor_leave_out_a_span_while_others_write(lived: History) -> None:
    issuer = lived.issuer
    expected = those(whole_trail(issuer), lambda one: one["operation"] == "refund")
    found = list[int]()
    after, number = 0, 0
    while True:
        told = issuer.audit_query(operation="refund", limit=3, after=after)
        found += sequences(told)
        assert told.more["more"] is (told.more["cursor"] is not None)
        if not told.more["more"] or number > len(expected):
            break
        after, number = int(str(told.more["cursor"])), number + 1
        if number % 5 == 0:
            refund(issuer, order=f"p-{number}", amount=1, task="later")
    assert found[: len(expected)] == expected
    assert found == sorted(set(found))
    last = those(whole_trail(issuer), lambda one: one["operation"] == "refund")
    backwards = list[int]()
    cursor = 0
    for _ in range(len(last)):
        told = issuer.audit_query(operation="refund", limit=3, after=cursor, newest=True)
        backwards += sequences(told)
        refund(issuer, order="p-late", amount=1, task="later")
        if not told.more["more"]:
            break
        cursor = int(str(told.more["cursor"]))
    assert backwards == last[::-1]


@pytest.mark.spec("AUD-06")
def test_what_a_policy_issued_by_itself(lived: History) -> None:
    expected = those(
        whole_trail(lived.issuer),
        lambda one: (
            one.name == "effect.permitted" and one["tier"] == "issue" and "small-refunds" in one["policy.ids"]
        ),
    )
    assert sequences(lived.issuer.audit_issued(policy="small-refunds")) == expected
    assert sequences(lived.issuer.audit_issued(policy="larger-refunds")) == []


@pytest.mark.spec("AUD-06", "BUD-04")
def test_every_unknown_outcome_is_told_with_the_money_that_it_holds(lived: History) -> None:
    told = lived.issuer.audit_unknowns()
    (row,) = rows(told, "unknowns")
    assert row["effect"] == lived.effects["unknown"]
    assert row["holds"] == {"USD.cent": 200}
    assert {(one["task"], one["amount"]) for one in row["levels"]} == {("t1", 200), ("org", 200)}
    assert (row["subject"], row["actor"], row["possible"]) == ("u-ana", "agent-7", ["none"])
    assert row["evidence"][0].startswith("none:exception:")
    assert told.more["totals"] == {"unknown": 1, "held": {"USD.cent": 200}}
    lines = "\n".join(told.more["lines"])  # type: ignore[arg-type]
    assert "1 unknown, holding 2.00 USD" in lines
    assert amount_text("USD.cent", 200) == "2.00 USD"


@pytest.mark.spec("AUD-06")
def test_permits_that_were_issued_and_never_used(lived: History) -> None:
    told = lived.issuer.audit_unused(limit=1_000)
    expected = unused_of(whole_trail(lived.issuer))
    assert {row["effect"]: row["state"] for row in rows(told, "unused")} == expected
    assert {"permitted", "expired", "withdrawn", "revoked"} == set(expected.values())
    named = {row["effect"]: row for row in rows(told, "unused")}
    assert named[lived.effects["withdrawn"]]["cost"] == {"USD.cent": 40}
    assert named[lived.effects["withdrawn"]]["ended"] is not None
    assert named[lived.effects["waiting"]]["ended"] is None
    assert named[lived.effects["waiting"]]["policies"] == ["small-refunds"]
    first = lived.issuer.audit_unused(limit=2)
    rest = lived.issuer.audit_unused(limit=1_000, after=str(first.more["cursor"]))
    assert [row["effect"] for page in (first, rest) for row in rows(page, "unused")] == [*named]
    assert rows(lived.issuer.audit_unused(actor="agent-8"), "unused") == []


@pytest.mark.spec("AUD-06", "PER-04")
def test_permits_that_one_span_collected_are_each_told_once(tmp_path: Path) -> None:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effects = [permitted(refund(issuer, order=f"o-{number}", amount=1)) for number in range(3)]
            for effect in effects:
                issuer.withdraw(effect)
            issuer.ledger_collect(early=True)
            found = list[str]()
            cursors = ["0"]
            for _ in effects:
                told = issuer.audit_unused(limit=1, after=cursors[-1])
                found += [row["effect"] for row in rows(told, "unused")]
                cursors.append(str(told.more["cursor"]))
            assert sorted(found) == sorted(effects)
            assert cursors[-1] == "None"


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("within_ms", [0, 10 * MINUTE_MS, 60 * MINUTE_MS])
def test_what_was_denied_and_then_done(lived: History, within_ms: int) -> None:
    trail = whole_trail(lived.issuer)
    told = lived.issuer.audit_denied_then_done(within_ms=within_ms, limit=1_000)
    found = [(row["no_sequence"], row["done_sequence"]) for row in rows(told, "denied_then_done")]
    assert found == denied_then_done_of(trail, within_ms)
    done = {row["done_effect"] for row in rows(told, "denied_then_done")}
    if within_ms == 10 * MINUTE_MS:
        assert done == {lived.effects["after_denial"], lived.effects["after_refusal"]}
        (first,) = [
            row
            for row in rows(told, "denied_then_done")
            if row["done_effect"] == lived.effects["after_denial"]
        ]
        assert (first["no_by"], first["done_by"], first["policies"]) == (
            "agent-7",
            "agent-8",
            ["small-refunds"],
        )
    assert (lived.effects["long_after_denial"] in done) is (within_ms == 60 * MINUTE_MS)


@pytest.mark.spec("AUD-06", "APP-03")
def test_who_said_yes_or_no_who_came_too_late_and_who_tried_for_themselves(lived: History) -> None:
    told = lived.issuer.audit_approvals()
    found = [(row["person"], row["answered"], row["effect"]) for row in rows(told, "answers")]
    agreed = lived.effects["approved"]
    assert found == [
        ("u-ana", "self", agreed),
        ("boss", "self", agreed),
        ("bob", "yes", agreed),
        ("carol", "no", lived.effects["declined"]),
        ("dan", "late", lived.effects["late"]),
    ]
    assert told.more["totals"] == {
        "bob": {"yes": 1},
        "boss": {"self": 1},
        "carol": {"no": 1},
        "dan": {"late": 1},
        "u-ana": {"self": 1},
    }
    of_boss = rows(lived.issuer.audit_approvals(approver="boss"), "answers")
    assert [row["answered"] for row in of_boss] == ["self"]


@pytest.mark.spec("AUD-06", "LED-07")
def test_a_page_that_looked_at_enough_is_not_the_end_of_the_answers(
    lived: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = rows(lived.issuer.audit_approvals(resource='Order::"a-1"'), "answers")
    assert len(wanted) == 3
    monkeypatch.setattr("audit.queries.VISITED_MAX", 1)
    assert rows(lived.issuer.audit_approvals(resource='Order::"a-1"'), "answers") == wanted


@pytest.mark.spec("AUD-09")
def test_changes_of_authority_are_asked_for_by_period_and_page(lived: History) -> None:
    issuer = lived.issuer
    kinds = {"task.opened", "task.granted", "task.frozen", "task.thawed"}
    kinds |= {"ledger.created", "sink.registered", "revision.activated"}
    expected = those(whole_trail(issuer), lambda one: one.name in kinds)
    assert sequences(issuer.audit_changes(), "changes") == expected
    first = issuer.audit_changes(limit=2)
    assert first.more["cursor"] == expected[1]
    assert sequences(issuer.audit_changes(after=expected[1]), "changes") == expected[2:]
    assert sequences(issuer.audit_changes(since="1h"), "changes") == expected[-1:]
    assert rows(issuer.audit_changes(), "changes")[0]["mode"] == "ordinary"


@pytest.mark.spec("AUD-06")
def test_who_looked_at_what(lived: History) -> None:
    issuer = lived.issuer
    issuer.audit_query(actor="agent-7")
    told = issuer.audit_access(limit=10_000)
    expected = those(whole_trail(issuer), lambda one: one.name in LOOKS)[:-1]
    assert sequences(told) == expected
    looked = rows(told)[-1]["attributes"]
    assert (looked["permit.command"], looked["permit.caller"]) == ("audit-query", "ops")
    assert any(row["name"] == "effect.content_shown" for row in rows(told)), (
        "statements show what is sensitive"
    )


@pytest.mark.spec("AUD-09")
def test_a_report_counts_what_reading_every_span_counts(lived: History) -> None:
    trail = whole_trail(lived.issuer)
    told = lived.issuer.audit_report()
    report: Any = told.more["population"]
    assert report["spans"] == len(trail)
    assert (report["first"], report["last"]) == (1, len(trail))
    counted = Counter(one.name for one in trail)
    assert report["transitions"] == counted
    assert report["effects"]["begun"] == counted["effect.prepared"]
    assert report["effects"]["permitted_by_people"] == 1
    permitted = report["effects"]["permitted_by_policy"] + report["effects"]["permitted_by_people"]
    assert permitted == counted["effect.permitted"]
    assert (report["effects"]["unknown"], report["effects"]["still_unknown"]) == (1, 1)
    assert report["money"]["reserved"] == amounts_of(trail, "effect.admitted", "cost")
    assert report["money"]["charged"] == amounts_of(trail, "effect.succeeded", "charged")
    assert report["people"]["boss"] == {"self": 1}
    assert sum(report["looks"].values()) == len(those(trail, lambda one: one.name in LOOKS))
    assert report["tree"]["size"] >= len(trail)


# --------------------------------------------------------------------------------------------- the forms


@pytest.mark.spec("AUD-07")
def test_spans_have_one_shape_in_every_form(lived: History) -> None:
    issuer = lived.issuer
    expected = sequences(issuer.audit_query(resource="o-8"))
    lines = str(issuer.audit_query(resource="o-8", form="jsonl").more["text"]).splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == expected
    sink = issuer_sink(lived)
    assert all(line in sink for line in lines), "a line is that of the sink"
    bodies = bodies_in_json(str(issuer.audit_query(resource="o-8", form="otlp-json").more["text"]))
    held = [issuer._house.ledger.read(lambda view, at=at: view.span_at(at)) for at in expected]  # type: ignore[misc]
    assert [*bodies] == [row.body for row in held if row is not None]
    cells = list(
        csv.DictReader(io.StringIO(str(issuer.audit_query(resource="o-8", form="csv").more["text"])))
    )
    assert [int(row["sequence"]) for row in cells] == expected
    assert {row["resource"] for row in cells} == {"o-8"}


def issuer_sink(lived: History) -> set[str]:
    lived.issuer._house.delivery.acknowledge(whole_trail(lived.issuer)[-1].sequence)
    return set(lived.office.made.sink.read_text(encoding="utf-8").splitlines())


@pytest.mark.spec("AUD-07", "SUR-03")
@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("audit_unknowns", "unknowns"),
        ("audit_unused", "unused"),
        ("audit_denied_then_done", "denied_then_done"),
        ("audit_approvals", "answers"),
    ],
)
def test_each_standing_question_has_every_form(lived: History, question: str, named: str) -> None:
    def ask(form: str = "table") -> Answer:
        told: Answer = getattr(lived.issuer, question)(form=form)
        assert told.code == "found"
        return told

    shown = rows(ask(), named)
    assert [json.loads(line) for line in str(ask("jsonl").more["text"]).splitlines()] == shown
    assert len(list(csv.DictReader(io.StringIO(str(ask("csv").more["text"]))))) == len(shown)
    assert len(bodies_in_json(str(ask("otlp-json").more["text"]))) >= len({str(row) for row in shown}) > 0


@pytest.mark.spec("AUD-06")
def test_questions_are_answered_from_many_threads_at_once(lived: History) -> None:
    found: list[Sequence[int]] = []

    def ask(issuer: Issuer) -> None:
        found.append(sequences(issuer.audit_query(actor="agent-8")))

    threads = [threading.Thread(target=ask, args=(lived.issuer,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({tuple(one) for one in found}) == 1
    assert (
        lived.issuer._house.ledger.read(lambda view: view.effect(EffectId(lived.effects["done"]))) is not None
    )
