"""Acts of people under the owner's policies: who is asked, who is refused, and what is seen of others' effects."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.caller import Caller
from issuer.clock import now_ms
from issuer.commands import activate
from issuer.look_spool import LookSpool
from issuer.wire import Answer
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs
from tests.support.callers import HOST, WITH_ROLES, Shop, opened_shop
from tests.support.cases import length, rebuilt, trail
from tests.support.issuers import HOUR_MS, STANDARD_POLICY, permitted
from tests.support.revised import activated
from tests.support.service import accept_then_close

MISSING = "eff_" + "0" * 32
ALLOWED = "allowed"
Act = Callable[[Issuer, str], Answer]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("acts") / "f0", policy=WITH_ROLES) as opened:
        yield opened


def hosts(shop: Shop, order: str) -> str:
    host = shop.host()
    return permitted(host.request("refund", {"order": order, "amount": 100}, task="t1", actor="agent-7"))


def unknown(shop: Shop, order: str) -> str:
    """Return an effect of the host whose outcome nobody knows."""
    shop.service.then(accept_then_close())
    host, effect = shop.host(), hosts(shop, order)
    assert host.as_caller(token=shop.token()).commit(effect).code == "outcome_unknown"
    return effect


ISSUER_ACTS: dict[str, tuple[str, Act, set[str]]] = {
    "task-open": (
        "openTask",
        lambda one, name: one.task_open(
            name, parent="t1", budget={}, expires_ms=InstantMs(now_ms() + HOUR_MS), classes={"refund": 1}
        ),
        {"u-ana", "olga"},
    ),
    "task-grant": (
        "openTask",
        lambda one, _: one.task_grant("org", budget={"USD.cent": 1}),
        {"u-ana", "olga"},
    ),
    "task-list": ("observe", lambda one, _: one.task_list(), {"u-ana", "olga", "otto", "ben"}),
    "task-freeze": ("revoke", lambda one, _: one.task_freeze("t1.b"), {"u-ana", "olga", "otto"}),
    "freeze": ("revoke", lambda one, _: one.freeze("class", "refund"), {"u-ana", "olga", "otto"}),
    "thaw": ("activate", lambda one, _: one.thaw("class", "refund"), {"u-ana", "olga"}),
    "host-token": ("activate", lambda one, _: one.host_token("depot"), {"u-ana", "olga"}),
    "ledger-collect": ("activate", lambda one, _: one.ledger_collect(), {"u-ana", "olga"}),
    "clock-accept": ("activate", lambda one, _: one.clock_accept(), {"u-ana", "olga"}),
}


@pytest.mark.spec("POL-01", "SEC-02", "AUD-01")
@pytest.mark.parametrize("person", ["u-ana", "olga", "otto", "ben", "mia"])
@pytest.mark.parametrize("word", ISSUER_ACTS)
def test_a_person_does_what_a_policy_lets_them_and_nothing_else(shop: Shop, word: str, person: str) -> None:
    action, act, may = ISSUER_ACTS[word]
    before = length(shop.issuer)
    told = act(shop.person(person), f"{word}-{person}")
    if person in may:
        assert told.code not in {"forbidden", "policy_error"}
        return
    assert (told.code, told.more["field"]) == ("forbidden", action)
    (entry,) = trail(shop.issuer, before)
    assert (entry.attributes["permit.caller"], entry.attributes["permit.command"]) == (person, word)
    assert entry.attributes["permit.policy.ids"] == ()
    assert "permit.bundle.digest" in entry.attributes


@pytest.mark.spec("POL-01")
def test_the_policies_that_forbid_are_named_in_the_trail_and_not_to_the_caller(tmp_path: Path) -> None:
    hours = '@id("not-mia") forbid (principal == Person::"mia", action == Action::"openTask", resource);'
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES + hours) as shop:
        told = shop.person("mia").task_close("t1.a")
        assert told.code == "forbidden"
        assert "not-mia" not in str(told.as_json())
        assert trail(shop.issuer)[-1].attributes["permit.policy.ids"] == ("not-mia",)


@pytest.mark.spec("POL-04", "POL-01")
def test_a_policy_that_fails_is_a_no_for_everybody(tmp_path: Path) -> None:
    broken = (
        '@id("broken") forbid (principal, action == Action::"openTask", resource)\n'
        'unless { !Person::"nobody".suspended };'
    )
    with opened_shop(tmp_path / "f0") as shop:
        (shop.made.folder / "policies" / "policies.cedar").write_text(WITH_ROLES + broken)
        activated(shop.made.profile)
        told = shop.issuer.task_close("t1.a")
        assert (told.code, told.more["field"]) == ("policy_error", "openTask")
        last = trail(shop.issuer)[-1].attributes
        assert last["permit.policy.errors"] == ("broken:missing_entity",)
        assert last["permit.policy.ids"] == ()


@pytest.mark.spec("POL-01", "SEC-02")
def test_a_bundle_that_names_no_act_asks_nobody_in_ordinary_mode(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=STANDARD_POLICY) as shop:
        for person in ("u-ana", "mia"):
            assert shop.person(person).task_freeze("t1.a").code == "frozen"
            assert shop.person(person).task_thaw("t1.a").code == "thawed"
        account = Issuer(
            shop.issuer._house, Caller(name="uid:4711", account="uid:4711", roles=()), shop.issuer._current
        )
        assert account.task_list().code == "found"


@pytest.mark.spec("POL-01", "SEC-02")
def test_an_account_that_is_no_person_is_not_asked_in_ordinary_mode_and_refused_in_strict(shop: Shop) -> None:
    who = Caller(name="uid:4711", account="uid:4711", roles=())
    ordinary = Issuer(shop.issuer._house, who, shop.issuer._current)
    assert ordinary.task_list().code == "found"
    strict = Issuer(shop.strict()._house, who, shop.strict()._current)
    assert (strict.task_list().code, strict.freeze().code) == ("policy_error", "policy_error")


@pytest.mark.spec("POL-01", "SEC-02", "BUD-05")
def test_a_suspended_person_does_nothing(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        olga = shop.person("olga")
        assert olga.task_freeze("t1.b").code == "frozen"
        assert shop.issuer.suspend("person", "olga").code == "suspended_now"
        assert (olga.task_thaw("t1.b").code, olga.task_list().code) == ("forbidden", "forbidden")
        assert shop.issuer.resume("person", "olga").code == "resumed"
        assert olga.task_thaw("t1.b").code == "thawed"


# ------------------------------------------------------------------------------------ effects of others


@pytest.mark.spec("EFF-08", "SEC-02", "AUD-06")
@pytest.mark.parametrize("person", ["u-ana", "olga", "otto", "ben", "mia"])
def test_effects_of_others_are_seen_by_policy_and_on_record_each_time(shop: Shop, person: str) -> None:
    effect = hosts(shop, f"seen-{person}")
    one = shop.person(person)
    may = person != "mia"
    looks: dict[str, Callable[[str], Answer]] = {"show": one.show, "audit-timeline": one.timeline}
    for word, look in looks.items():
        before = length(shop.issuer)
        told = look(effect)
        entries = trail(shop.issuer, before)
        assert told.code == ("found" if may else "not_found")
        assert [entry.name for entry in entries] == (["observed"] if may else ["refused"])
        said = entries[0].attributes
        assert (said["permit.caller"], said["permit.command"]) == (person, word)
        if may:
            assert said["permit.policy.ids"] == ("observe-effects",)
            assert (said["permit.resource.id"], said["permit.count"]) == (f"seen-{person}", 1)
        else:
            assert told.as_json() == look(MISSING).as_json()
    before = length(shop.issuer)
    rows = [row["effect"] for row in one.list().more["effects"]]  # type: ignore[attr-defined]
    assert (effect in rows) is may
    assert [entry.name for entry in trail(shop.issuer, before)] == (["observed"] if may else [])


@pytest.mark.spec("EFF-08", "AUD-02")
def test_what_is_not_on_record_is_not_shown(tmp_path: Path) -> None:
    """A ledger that takes no span, and no file for what is recorded later: nothing of others' effects is shown."""
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        effect = hosts(shop, "o-1")

        class Full:
            def __getattr__(self, name: str) -> object:
                return getattr(shop.issuer._house.ledger, name)

            def transact(self, *_args: object, **_options: object) -> object:
                raise LedgerUnavailable("disk_full", "The disk is full.")

        ben = shop.person("ben", issuer=rebuilt(shop.issuer, ledger=Full()))
        house = shop.issuer._house
        for place in LookSpool(house.places, house.ring, house.ledger.ledger_id)._folders:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("no folder")
        for told in (ben.show(effect), ben.timeline(effect), ben.list()):
            assert told.code == "ledger_unavailable"
            assert "refund" not in str(told.more)


@pytest.mark.spec("EFF-08")
def test_a_look_at_what_is_ones_own_is_neither_asked_nor_recorded(shop: Shop) -> None:
    mia = shop.person("mia")
    effect = permitted(mia.request("refund", {"order": "mine", "amount": 1}, task="t1", actor="agent-7"))
    before = length(shop.issuer)
    assert (mia.show(effect).code, mia.timeline(effect).code, mia.list().code) == ("found",) * 3
    assert trail(shop.issuer, before) == ()
    assert mia.commit(MISSING).code == "not_found"


@pytest.mark.spec("EFF-08", "SEC-02")
def test_to_observe_an_effect_is_not_to_use_it(shop: Shop) -> None:
    effect = hosts(shop, "observed-only")
    for person in ("u-ana", "olga", "ben"):
        one = shop.person(person)
        assert one.show(effect).code == "found"
        for act in (one.commit, one.admit, one.withdraw, one.request_held):
            assert act(effect).code == "not_found"
    assert shop.person("ben").reconcile(effect).code == "not_found"


@pytest.mark.spec("REC-01", "REC-04", "POL-01", "SEC-02")
def test_an_operator_reconciles_and_acknowledges_what_a_host_cannot(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        effect = unknown(shop, "lost")
        for person in ("ben", "olga", "mia"):
            one = shop.person(person)
            assert one.acknowledge(effect, reason="lost").code == "not_found"
            assert one.reconcile(effect).code == "not_found"
        otto = shop.person("otto")
        assert otto.reconcile(effect).code == "unsupported"  # the standard refund says no way to look
        assert otto.acknowledge(effect, reason="lost").code == "acknowledged"
        (entry,) = [one for one in trail(shop.issuer) if one.name == "effect.acknowledged"]
        assert entry.attributes["permit.caller"] == "otto"


@pytest.mark.spec("REC-01", "REC-04", "POL-01")
def test_an_own_effect_is_no_reason_to_acknowledge_it_where_policies_say_who(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        shop.service.then(accept_then_close())
        mia = shop.person("mia")
        effect = permitted(mia.request("refund", {"order": "o", "amount": 1}, task="t1", actor="agent-7"))
        assert mia.commit(effect).code == "outcome_unknown"
        told = mia.acknowledge(effect, reason="lost")
        assert (told.code, told.more["field"]) == ("forbidden", "acknowledge")
        assert shop.person("otto").acknowledge(effect, reason="lost").code == "acknowledged"


@pytest.mark.spec("POL-01", "EFF-08", "LED-04")
def test_a_house_that_only_reads_asks_the_policies_in_force(
    tmp_path: Path,
) -> None:
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        effect = hosts(shop, "o-1")
        with shop.made.open(reading=True) as reading:
            assert shop.person("ben", issuer=reading).show(effect).code == "found"
            assert shop.person("mia", issuer=reading).show(effect).code == "not_found"
        draft = shop.made.folder / "policies" / "policies.cedar"
        draft.write_text("permit (principal")
        with shop.made.open(reading=True) as reading:
            assert shop.person("ben", issuer=reading).show(effect).code == "found"  # a draft is nobody's word
            assert reading.as_caller(token=shop.token()).show(effect).code == "found"
        draft.write_text(STANDARD_POLICY)
        activated(shop.made.profile)
        with shop.made.open(reading=True) as reading:
            assert shop.person("ben", issuer=reading).show(effect).code == "not_found"


def test_the_host_is_named_as_such(shop: Shop) -> None:
    effect = hosts(shop, "named")
    record = shop.issuer.show(effect).more["record"]
    assert record["caller"] == HOST  # type: ignore[index]


@pytest.mark.spec("POL-01", "POL-07", "SEC-02")
def test_only_whom_the_policies_in_force_let_activate_does_so(tmp_path: Path) -> None:
    """A draft that gives its own author the role is not what is asked."""
    with opened_shop(tmp_path / "f0", policy=WITH_ROLES) as shop:
        text = shop.made.profile.read_text()
        plain = text.replace('u-ana = { roles = ["owner", "operator"]', 'u-ana = { roles = ["operator"]')
        shop.made.profile.write_text(plain)
        activated(shop.made.profile)  # the last act of an owner
        shop.made.profile.write_text(text)
        told = activate(shop.made.profile)
        assert (told.code, told.more["field"]) == ("forbidden", "activate")
        assert trail(shop.issuer)[-1].attributes["permit.refusal"] == "forbidden"


@pytest.mark.spec("SEC-02", "BUD-05")
def test_a_suspended_owner_activates_nothing(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0", policy=STANDARD_POLICY) as shop:
        assert shop.issuer.suspend("person", "u-ana").code == "suspended_now"
        assert activate(shop.made.profile).code == "forbidden"
