"""A host or an actor with a credential of its own: what it may, what it never may, and how its credential ends."""

import ast
import dataclasses
import inspect
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer import Issuer, commands
from issuer.caller import NOBODY
from issuer.clock import now_ms
from issuer.commands.roles import COMMANDS
from issuer.errors import SetupError
from issuer.profile import ProfileRefused, load_profile
from issuer.tokens import read_token, token_of
from issuer.wire import Answer
from ledger.model import InstantMs
from tests.support.callers import ACTOR, HOST, Shop, opened_shop
from tests.support.cases import length, refusals, trail
from tests.support.issuers import HOUR_MS, permitted
from tests.support.revised import activated
from tests.support.service import answer

MISSING = "eff_" + "0" * 32
Act = Callable[[Issuer, str], Answer]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("shop") / "f0") as opened:
        yield opened


def asked(issuer: Issuer, actor: str = "agent-7", order: str = "o-1") -> Answer:
    return issuer.request("refund", {"order": order, "amount": 100}, task="t1", actor=actor)


def callers(shop: Shop) -> dict[str, Issuer]:
    return {HOST: shop.host(), ACTOR: shop.actor()}


# ------------------------------------------------------------------------------------ the one table


@pytest.mark.spec("SEC-02", "SUR-01")
def test_every_command_of_every_surface_has_its_demand() -> None:
    declared = {name for demand in COMMANDS.values() for name in demand.functions}
    assert set(commands.__all__) <= declared
    parts = [one for one in Issuer.__mro__ if one.__module__.startswith("issuer.api")]
    tree = ast.Module(
        body=[part for one in parts for part in ast.parse(inspect.getsource(one)).body], type_ignores=[]
    )
    words = set()
    for call in [one for one in ast.walk(tree) if isinstance(one, ast.Call)]:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"_visit", "_done"}:
            continue
        assert isinstance(call.args[0], ast.Constant)
        word = str(call.args[0].value)
        words.add(word)
        inside = [one for one in ast.walk(call) if isinstance(one, ast.Attribute)]
        for one in inside:
            if ast.unparse(one.value) == "commands":
                assert one.attr in COMMANDS[word].functions, word
    assert words <= set(COMMANDS)
    assert len(words) > len(COMMANDS) / 2


@pytest.mark.spec("SEC-02")
def test_a_command_without_a_demand_is_our_fault_and_does_nothing(shop: Shop) -> None:
    visit = dataclasses.replace(shop.issuer._visit("show"), command="nobody-declared-it")
    told = commands.task_close(visit, "t1.a")
    assert told.code == "fault"
    assert shop.issuer.task_show("t1.a").more["task"]["state"] == "open"  # type: ignore[index]


NEVER: dict[str, Act] = {
    "task-open": lambda one, _: one.task_open(
        "x", budget={}, expires_ms=InstantMs(now_ms() + HOUR_MS), parent="t1"
    ),
    "task-show": lambda one, _: one.task_show("t1"),
    "task-list": lambda one, _: one.task_list(),
    "task-close": lambda one, _: one.task_close("t1"),
    "task-freeze": lambda one, _: one.task_freeze("t1"),
    "task-thaw": lambda one, _: one.task_thaw("t1"),
    "task-grant": lambda one, _: one.task_grant("t1", budget={"USD.cent": 1}),
    "task-lower": lambda one, _: one.task_lower("t1", budget={"USD.cent": 1}),
    "task-accept-overrun": lambda one, _: one.task_accept_overrun("t1"),
    "revisions": lambda one, _: one.revisions(),
    "audit-changes": lambda one, _: one.audit_changes(),
    "audit-prove": lambda one, effect: one.audit_prove(effect, "never.json"),
    "sink-list": lambda one, _: one.sink_list(),
    "sink-replace": lambda one, _: one.sink_replace("local"),
    "sink-quarantine": lambda one, _: one.sink_quarantine("local", reason="other"),
    "audit-query": lambda one, _: one.audit_query(),
    "audit-issued": lambda one, _: one.audit_issued(),
    "audit-story": lambda one, _: one.timeline(task="t1"),
    "audit-unknowns": lambda one, _: one.audit_unknowns(),
    "audit-unused": lambda one, _: one.audit_unused(),
    "audit-denied-then-done": lambda one, _: one.audit_denied_then_done(),
    "audit-approvals": lambda one, _: one.audit_approvals(),
    "audit-access": lambda one, _: one.audit_access(),
    "audit-report": lambda one, _: one.audit_report(),
    "audit-export": lambda one, _: one.audit_export("never.jsonl"),
    "audit-snapshot": lambda one, _: one.audit_snapshot("never.db"),
    "audit-checkpoint": lambda one, _: one.audit_checkpoint(),
    "audit-key": lambda one, _: one.audit_key(),
    "audit-archive": lambda one, _: one.audit_archive("never.jsonl"),
    "audit-hash": lambda one, _: one.audit_hash("Order", "o-1"),
    "keys-list": lambda one, _: one.keys_list(),
    "keys-rotate": lambda one, _: one.keys_rotate(),
    "keys-retire": lambda one, _: one.keys_retire("00000001"),
    "keys-revoke": lambda one, _: one.keys_revoke("00000001"),
    "clock-accept": lambda one, _: one.clock_accept(),
    "ledger-collect": lambda one, _: one.ledger_collect(early=True),
    "reconcile": lambda one, effect: one.reconcile(effect),
    "acknowledge": lambda one, effect: one.acknowledge(effect, reason="lost", charge=True),
    "show-content": lambda one, effect: one.show(effect, content=True),
    "approvals": lambda one, _: one.approvals(),
    "statement": lambda one, effect: one.statement(effect),
    "approve": lambda one, effect: one.approve(effect, "yes"),
    "decline": lambda one, effect: one.decline(effect, "no", reason="not_agreed"),
    "revoke": lambda one, effect: one.revoke("effect", effect),
    "freeze": lambda one, _: one.freeze(),
    "thaw": lambda one, _: one.thaw(),
    "suspend": lambda one, _: one.suspend("person", "u-ana"),
    "resume": lambda one, _: one.resume("person", "u-ana"),
    "host-token": lambda one, _: one.host_token("till"),
    "actor-token": lambda one, _: one.actor_token("agent-8"),
}


@pytest.mark.spec("SEC-02", "APP-01", "AUD-01")
@pytest.mark.parametrize("who", [HOST, ACTOR])
@pytest.mark.parametrize("word", NEVER)
def test_no_agent_gives_a_command_of_people_whatever_it_is_about(shop: Shop, word: str, who: str) -> None:
    agent = callers(shop)[who]
    actor = "agent-7" if who == HOST else "agent-8"
    effect = permitted(asked(agent, actor, order=f"{word}-{actor}"))
    before = length(shop.issuer)
    told = NEVER[word](agent, effect)
    assert (told.code, told.more["field"]) == ("forbidden", "caller")
    (entry,) = trail(shop.issuer, before)
    assert entry.name == "refused"
    assert entry.attributes["permit.caller"] == who
    assert entry.attributes["permit.command"] == word
    shop.issuer.revoke("effect", effect)


def test_the_table_of_what_no_agent_may_is_complete() -> None:
    without_an_issuer = {"ledger-check", "ledger-stats", "ledger-backup", "ledger-restore", "activate"}
    people = {word for word, demand in COMMANDS.items() if not demand.agents}
    assert people - without_an_issuer == set(NEVER)


@pytest.mark.spec("SEC-02", "EFF-08")
@pytest.mark.parametrize("who", [HOST, ACTOR])
def test_an_agent_asks_uses_and_sees_what_is_its_own(tmp_path: Path, who: str) -> None:
    with opened_shop(tmp_path / "f0") as shop:
        shop.service.then(answer(201))
        agent, actor = (shop.host(), "agent-7") if who == HOST else (shop.actor(), "agent-8")
        foreign = permitted(asked(shop.issuer, order="o-9"))
        run = agent.invocation_open("t1", actor, InstantMs(now_ms() + HOUR_MS))
        invocation = str(run.more["invocation"]["id"])  # type: ignore[index]
        held = agent.request(
            "refund",
            {"order": "o-1", "amount": 100},
            task="t1",
            actor=actor,
            hold=True,
            invocation=invocation,
        )
        assert held.code == "prepared"
        effect = permitted(agent.request_held(held.effect or ""))
        assert agent.commit(effect).code == "succeeded"
        assert agent.show(effect).more["record"]["caller"] == who  # type: ignore[index]
        assert [row["effect"] for row in agent.list().more["effects"]] == [effect]  # type: ignore[attr-defined]
        assert agent.timeline(effect).code == "found"
        assert agent.invocation_show(invocation).code == "found"
        assert agent.invocation_end(invocation, "succeeded").code == "ended"
        publish = permitted(agent.request("publish", {"name": "v1"}, task="t1", actor=actor))
        claim = str(agent.admit(publish).more["claim"])
        assert agent.report(publish, claim, succeeded=True).code == "succeeded"
        other = permitted(agent.request("publish", {"name": "v2"}, task="t1", actor=actor))
        assert agent.withdraw(other).state == "withdrawn"
        for act in (
            agent.show,
            agent.commit,
            agent.admit,
            agent.timeline,
            agent.withdraw,
            agent.request_held,
        ):
            assert act(foreign).as_json() == act(MISSING).as_json()
            assert act(foreign).code == "not_found"
        assert shop.issuer.show(effect).code == "not_found"


# ------------------------------------------------------------------------------------ for whom it speaks


@pytest.mark.spec("EFF-08", "SEC-04")
@pytest.mark.parametrize(
    ("who", "actor", "subject", "field"),
    [
        (HOST, "agent-8", None, "actor"),
        (HOST, "agent-9", None, "actor"),
        (HOST, "till", None, "actor"),
        (HOST, "agent-7", "mia", "subject"),
        (HOST, "agent-7", "nobody", "subject"),
        (ACTOR, "agent-7", None, "actor"),
        (ACTOR, "agent-9", None, "actor"),
    ],
)
def test_an_agent_speaks_for_nobody_else(
    shop: Shop, who: str, actor: str, subject: str | None, field: str
) -> None:
    agent = callers(shop)[who]
    told = agent.request("refund", {"order": "o", "amount": 1}, task="t1", actor=actor, subject=subject)
    assert (told.code, told.more["field"], told.effect) == ("forbidden", field, None)
    run = agent.invocation_open("t1", actor, InstantMs(now_ms() + HOUR_MS))
    assert run.code == ("forbidden" if field == "actor" else "opened")


@pytest.mark.spec("POL-05", "EFF-08")
def test_a_host_that_may_not_speak_for_an_actor_any_more_does_not_send_what_it_was_permitted(
    tmp_path: Path,
) -> None:
    with opened_shop(tmp_path / "f0") as shop:
        agent = shop.host()
        effect, held = (
            permitted(asked(agent)),
            agent.request("refund", {"order": "o-2", "amount": 100}, task="t1", actor="agent-7", hold=True),
        )
        text = shop.made.profile.read_text()
        shop.made.profile.write_text(
            text.replace('till = { actors = ["agent-7"]', 'till = { actors = ["agent-8"]')
        )
        activated(shop.made.profile)
        for told in (agent.commit(effect), agent.request_held(held.effect or "")):
            assert (told.code, told.more["field"]) == ("forbidden", "actor")
        assert shop.service.connections == 0


# ------------------------------------------------------------------------------------ the credential


@pytest.mark.spec("SEC-01", "SEC-02")
def test_a_token_is_shown_once_and_only_its_digest_is_kept(shop: Shop) -> None:
    before = length(shop.issuer)
    told = shop.issuer.host_token("till")
    token = str(told.more["token"])
    assert (told.code, told.more["credential"]) == ("credential_issued", HOST)
    (entry,) = trail(shop.issuer, before)
    assert (entry.name, entry.attributes["permit.credential"]) == ("credential.issued", HOST)
    secret = token.rpartition("_till_")[2]
    assert len(secret) == 43
    kept = b"".join(path.read_bytes() for path in shop.made.folder.rglob("*") if path.is_file())
    kept += shop.made.sink.read_bytes()
    assert secret.encode() not in kept
    assert secret not in repr(read_token(token))
    assert secret not in repr(shop.issuer.as_caller(token=token)._visit("show").caller)


@pytest.mark.spec("SEC-02", "AUD-01")
def test_whatever_is_no_credential_gets_one_answer_and_its_name_is_not_repeated(shop: Shop) -> None:
    good = shop.token()
    secret = good.rpartition("_")[2] if "_" not in good[-43:] else good[-43:]
    wrong = {
        "nothing": "",
        "no token": "let me in",
        "another secret": good[:-43] + "A" * 43,
        "cut": good[:-1],
        "longer": good + "A",
        "padded": good + "=",
        "another kind": good.replace("pit_host_", "pit_actor_"),
        "an actor's name": f"pit_host_agent-8_{secret}",
        "a host without a token login": f"pit_host_desk_{secret}",
        "a host that has none yet": f"pit_host_depot_{secret}",
        "nobody's": f"pit_host_mallory_{secret}",
        "a person's": f"pit_person_u-ana_{secret}",
        "another case": good.replace("till", "TILL"),
        "two lines": good + "\n",
        "huge": "pit_host_till_" + "A" * 100_000,
    }
    told = {}
    for name, token in wrong.items():
        before = length(shop.issuer)
        agent = shop.issuer.as_caller(token=token)
        told[name] = asked(agent, order="o-x").as_json()
        (entry,) = trail(shop.issuer, before)
        assert entry.attributes["permit.caller"] == NOBODY.name, name
        assert entry.attributes["permit.refusal"] == "unauthenticated"
        assert "permit.actor" not in entry.attributes
        assert agent.approve(MISSING, "x").code == "unauthenticated"
        assert agent.task_list().code == "unauthenticated"
    assert len({str(one) for one in told.values()}) == 1
    assert told["nothing"]["code"] == "unauthenticated"
    assert permitted(asked(shop.issuer.as_caller(token=good), order="o-y"))


@pytest.mark.spec("SEC-02", "SEC-03", "POL-05")
@pytest.mark.parametrize("end", ["replaced", "revoked", "no login", "no host"])
def test_a_credential_that_ends_while_it_is_in_use_ends_at_the_next_command(tmp_path: Path, end: str) -> None:
    with opened_shop(tmp_path / "f0") as shop, shop.made.open() as owner:
        agent = shop.host()
        effect = permitted(asked(agent))
        text = shop.made.profile.read_text()
        if end == "replaced":
            assert owner.host_token("till").code == "credential_issued"
        elif end == "revoked":
            assert owner.revoke("host", "till").code == "revoked_now"
        elif end == "no login":
            shop.made.profile.write_text(
                text.replace('subjects = ["u-ana"], login = "token"', 'subjects = ["u-ana"]')
            )
        else:
            kept = [line for line in text.splitlines() if not line.startswith("till = { actors")]
            shop.made.profile.write_text("\n".join(kept) + "\n")
        activated(shop.made.profile)
        for told in (agent.commit(effect), asked(agent, order="o-2"), agent.list(), agent.show(effect)):
            assert told.code == "unauthenticated"
        assert shop.service.connections == 0


@pytest.mark.spec("SEC-02", "ADM-01", "POL-05")
@pytest.mark.parametrize("act", ["request", "held", "commit"])
def test_a_credential_that_is_replaced_between_the_look_and_the_lock_gives_nothing(
    tmp_path: Path, act: str
) -> None:
    """The owner replaces it as the command has begun: what decides is what stands under the lock."""
    armed: list[Issuer] = []

    def struck() -> None:
        if armed:
            assert armed.pop().host_token("till").code == "credential_issued"

    with opened_shop(tmp_path / "f0") as shop, shop.made.open() as owner:
        token = shop.token()

        class Late:
            """The sinks' probe comes after the edge and before the lock."""

            def __getattr__(self, name: str) -> object:
                if name == "probe":
                    struck()
                return getattr(shop.issuer._house.delivery, name)

        house = dataclasses.replace(shop.issuer._house, delivery=Late())  # type: ignore[arg-type]
        agent = Issuer(house, shop.issuer._caller, lambda: house).as_caller(token=token)
        hold = act == "held"
        made = agent.request("refund", {"order": "o-1", "amount": 100}, task="t1", actor="agent-7", hold=hold)
        armed.append(owner)
        if act == "request":
            told = asked(agent, order="o-2")
        else:
            told = agent.request_held(made.effect or "") if hold else agent.commit(made.effect or "")
        assert not armed
        assert told.code == "unauthenticated"
        assert shop.service.connections == 0
        assert refusals(shop.issuer)[-1][0] == "unauthenticated"


@pytest.mark.spec("EFF-08", "SEC-02")
def test_a_host_and_a_person_of_one_name_are_two_callers(shop: Shop) -> None:
    """The person `till` and the host `till` see nothing of each other, and neither is taken for an account."""
    host, person = shop.host(), shop.person("till")
    of_host = permitted(asked(host, order="name-1"))
    of_person = permitted(asked(person, order="name-2"))
    assert person.show(of_host).code == host.show(of_person).code == "not_found"
    assert host.commit(of_person).code == person.commit(of_host).code == "not_found"
    assert shop.issuer.revoke("host", "till").code == "revoked_now"
    assert person.show(of_person).state == "permitted"
    assert person.show(of_host).code == "not_found"
    assert shop.issuer.thaw("host", "till").code == "resumed"


@pytest.mark.spec("SEC-02")
def test_a_login_is_one_callers_whatever_it_is_of(tmp_path: Path) -> None:
    twice = 'agent-8 = { answers_to = "u-ana", groups = ["bots"], login = "uid:4711" }\n[host]'
    once = 'agent-8 = { answers_to = "u-ana", groups = ["bots"], login = "token" }\n[host]'
    with opened_shop(tmp_path / "f0") as shop:
        text = shop.made.profile.read_text()
        shop.made.profile.write_text(text.replace(once, twice))
        with pytest.raises(ProfileRefused, match="already logs in"):
            load_profile(shop.made.profile)


@pytest.mark.spec("SEC-02")
def test_only_a_host_that_the_profile_lets_in_by_token_gets_one(shop: Shop) -> None:
    assert shop.issuer.host_token("desk").code == "unsupported"
    assert shop.issuer.host_token("nobody").code == "unknown_reference"
    assert shop.issuer.actor_token("agent-7").code == "unsupported"
    assert shop.issuer.actor_token("till").code == "unknown_reference"


@pytest.mark.spec("SEC-03")
def test_a_token_is_read_from_a_private_file_of_this_account_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("pit_host_till_x\n")
    file.chmod(0o600)
    assert token_of(str(file)) == "pit_host_till_x"
    assert token_of(None) is None
    link, open_one = tmp_path / "link", tmp_path / "open"
    link.symlink_to(file)
    open_one.write_text("pit_host_till_x")
    open_one.chmod(0o640)
    for path in (link, open_one, tmp_path, tmp_path / "none"):
        with pytest.raises(SetupError):
            token_of(str(path))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.spec("SEC-04")
def test_an_agent_is_never_asked_whether_it_meant_another_name(shop: Shop) -> None:
    host = shop.host()
    for told in (
        host.request("refunt", {}, task="t1", actor="agent-7"),
        host.request("refund", {"order": "o", "amount": 1}, task="t1x", actor="agent-7"),
    ):
        assert told.code == "unknown_reference"
        assert "mean" not in told.say
    assert "mean" in shop.issuer.request("refunt", {}, task="t1", actor="agent-7").say
