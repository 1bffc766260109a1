"""The table of situations, played: each adapter, each behaviour of the other side, before, during and after.

After every row the effect, its money and its trail say the same, and asking for everything again sends nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audit import Delivery, LedgerSpans
from issuer import Issuer
from issuer.errors import SetupError
from issuer.wire import Answer
from tests.support.cases import Clock, all_at, books, command, rebuilt, small_tree, state_of
from tests.support.issuers import STANDARD_POLICY, standard_issuer
from tests.support.service import Service, closed_port
from tests.support.sinks import FaultySink
from tests.support.situation_plays import MANNERS, PLAYERS, Play, Stage
from tests.support.situations import SITUATIONS, Situation, page
from tests.support.third_party import NO_DIGEST, Installed, installed, python_table, shown_digest

FURTHER = """
[operation.refund_nowhere]
@REFUND@
http = { method = "POST", url = "https://nowhere.invalid/refunds" }
[operation.refund_closed]
@REFUND@
http = { method = "POST", url = "http://127.0.0.1:@CLOSED@/refunds" }
[operation.refund_tls]
@REFUND@
http = { method = "POST", url = "https://127.0.0.1:@PORT@/refunds" }
[operation.refund_secret]
@REFUND@
http = { method = "POST", url = "http://127.0.0.1:@PORT@/refunds", bearer = "nobody_has_it" }
[operation.refund_before]
@DOSSIER@
http = { method = "POST", url = "http://127.0.0.1:@PORT@/refunds" }
before = { url = "http://127.0.0.1:@PORT@/orders/{order}", facts = { revision = "int" } }
[operation.refund_said]
@REFUND@
http = { method = "POST", url = "http://127.0.0.1:@PORT@/refunds" }
[operation.create]
@FILE@
file = { action = "create", root = "files", path = "{path}", content = "new" }
[operation.replace]
@FILE@
file = { action = "replace", root = "files", path = "{path}", content = "new" }
[operation.delete]
@FILE@
file = { action = "delete", root = "files", path = "{path}" }
[operation.replace_shared]
@FILE@
file = { action = "replace", root = "shared", path = "{path}", content = "new" }
[operation.run]
class = "refund"
resource = { type = "Release", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "USD.cent" = 300 }
host = { deadline = "3s" }
"""
SAID = """proves = { succeeded = [201], accepted = [202], partial = [207], charged = { "USD.cent" = "/charged" } }"""
SELL = """class = "refund"
resource = { type = "Sale", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [1, 1_000_000], public = true } }
cost = { "USD.cent" = "{amount}" }"""
ALL_PROOFS = (
    'proves = ["succeeded", "failed", "no_effect", "accepted", "partial"], charges = true, key_kept = "24h"'
)
REFUND = """class = "refund"
resource = { type = "Order", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [1, 1_000_000], public = true } }
cost = { "USD.cent" = "{amount}" }
body = { order = "{order}" }
proves = { succeeded = [201] }"""
FILE = """class = "refund"
resource = { type = "File", id = "{path}" }
payload = { path = { string = 80, public = true } }
cost = { "USD.cent" = 300 }"""
POLICY = (
    STANDARD_POLICY
    + """
@id("files")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is File);
@id("sales")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Sale);
@id("dossiers")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Dossier);
"""
)


def sales(folder: Path, shop: Installed, port: int) -> str:
    """Return the operations of the third party's adapter, a manner each, as their owner admitted it."""

    def declared(digest: str) -> str:
        tables = [
            f"[operation.sell_{number}]\n{SELL}\n"
            + python_table(shop.name, port, digest=digest, terms=ALL_PROOFS, manner=manner)
            for number, manner in enumerate(MANNERS)
        ]
        return "\n".join(tables) + "\n"

    further = {"[operation.publish]": declared(NO_DIGEST) + "[operation.publish]"}
    with pytest.raises(SetupError) as refused:
        standard_issuer(folder, port=port, changes=further)
    return declared(shown_digest(refused.value))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    clock, sink = Clock(), FaultySink()
    stage: Stage | None = None

    def observe(step: str) -> None:
        if stage is not None:
            stage.reached(str(step))

    site = tmp_path_factory.mktemp("site")
    with Service() as service, closed_port() as closed, installed(site / "packages") as shop:
        said = REFUND.replace("proves = { succeeded = [201] }", SAID)
        text = FURTHER.replace("[operation.refund_said]\n@REFUND@", f"[operation.refund_said]\n{said}")
        dossier = REFUND.replace('"Order"', '"Dossier"')
        text = text.replace("@REFUND@", REFUND).replace("@DOSSIER@", dossier).replace("@FILE@", FILE)
        text += sales(site / "refused", shop, service.port)
        text = text.replace("@PORT@", str(service.port)).replace("@CLOSED@", str(closed))
        folder = tmp_path_factory.mktemp("situations") / "f0"
        for name, mode in (("files", 0o700), ("shared", 0o777)):
            (folder / name).mkdir(parents=True)
            (folder / name).chmod(mode)
        made = standard_issuer(
            folder,
            port=service.port,
            policy=POLICY,
            changes={"[operation.publish]": text + "[operation.publish]"},
        )
        with made.open(clock=clock, observe=observe, further_sinks=[sink]) as issuer:
            stage = Stage(made=made, service=service, issuer=issuer, clock=clock, sink=sink)
            yield stage


@pytest.fixture
def stage(whole: Stage) -> Iterator[Stage]:
    """The stage with an impatient delivery, so that a sink that is gone costs little."""
    house = whole.issuer._house
    sinks = [worker._sink for worker in house.delivery._required]
    delivery = Delivery(sinks, LedgerSpans(house.ledger), probe_deadline_s=2.0, ship_deadline_s=2.0)
    opened, whole.issuer = whole.issuer, rebuilt(whole.issuer, delivery=delivery)
    whole.rows += 1
    yield whole
    whole.issuer, whole.at = opened, {}
    whole.sink.recover()
    delivery.close()


def test_each_row_has_a_player_and_is_a_situation_of_its_own() -> None:
    assert [row.name for row in SITUATIONS] == list(dict.fromkeys(row.name for row in SITUATIONS))
    for adapter, players in PLAYERS.items():
        assert {row.what for row in SITUATIONS if row.adapter == adapter} == set(players)
    assert all(row.effects <= 1 and row.sent <= 1 for row in SITUATIONS)


def test_the_reference_page_is_the_table() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "reference" / "situations.md"
    assert written.read_text(encoding="utf-8") == page()


@pytest.mark.spec(
    "REP-01", "REP-04", "REP-05", "REP-06", "REC-07", "ADM-03", "ADM-04", "BUD-03", "BUD-04", "AUD-01"
)
@pytest.mark.parametrize("row", SITUATIONS, ids=lambda row: row.name)
def test_effect_money_and_trail_agree_and_nothing_is_sent_a_second_time(row: Situation, stage: Stage) -> None:
    tasks = small_tree(stage.issuer, f"tree-{stage.rows}")
    play = Play(stage=stage, tasks=tasks)
    PLAYERS[row.adapter][row.what](play)
    assert ("" if play.told is None else play.told.code) == row.code
    assert (play.sent, play.effects) == (row.sent, row.effects)
    if not row.state:
        assert (play.effect, books(stage.issuer, *tasks)) == ("", all_at(*tasks))
        return
    assert_on_record(row, play)
    stage.sink.recover()
    connections = stage.service.connections
    for again in (stage.issuer.commit, stage.issuer.admit, _dispatched_again(stage)):
        if row.state != "permitted":
            assert again(play.effect).code not in {"permitted", "admitted"}
    assert stage.service.connections == connections
    assert_on_record(row, play)


def _dispatched_again(stage: Stage) -> Callable[[str], Answer]:
    """Return a dispatch whose command would be seen to have run."""
    mark = stage.made.folder / "ran-again"

    def dispatch(effect: str) -> Answer:
        told = stage.issuer.dispatch(effect, ["/usr/bin/touch", str(mark)])
        assert not mark.exists()
        return told

    return dispatch


def assert_on_record(row: Situation, play: Play) -> None:
    """State, money at every level, and the last move that the trail tells are what the row says."""
    issuer = play.stage.issuer
    assert state_of(issuer, play.effect) == row.state
    assert books(issuer, *play.tasks) == all_at(*play.tasks, reserved=row.held, settled=row.charged)
    told = [entry["to"] for entry in _timeline(issuer, play.effect) if entry["to"]]
    assert told[-1] == row.state
    assert told.count("admitted") == (row.state != "permitted")


def _timeline(issuer: Issuer, effect: str) -> list[dict[str, object]]:
    entries = issuer.timeline(effect).more["timeline"]
    assert isinstance(entries, list)
    return entries


@pytest.mark.spec("LED-04", "AUD-01")
def test_the_ledger_is_whole_after_all_of_it(stage: Stage) -> None:
    stage.sink.recover()
    checked = command(stage.made, "ledger", "check")
    assert (checked.exit, checked.answer["findings"]) == (0, [])
