"""Case D15, secrets in telemetry: whatever happens to an effect, its secrets are found nowhere but where they belong.

A service's credential and a secret and a sensitive field go through success, every kind of no, a lost answer, a
command that fails and a killed process. Then everything that was written is searched, in every encoding.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from tests.support.canaries import CANARIES, CARD, NOTE, TOKEN, forms, found_in, places_of
from tests.support.issuers import STANDARD_POLICY, Made, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service, accept_then_close, answer, closed_port, garbage, raw
from tests.support.shell import PROCESS_S, Ran, environment, issuer_here, issuer_process
from tests.support.witness import witness

SPOKEN_TO = {"credentials": "the owner's own file"}
CHANGES = {
    'order = "{order}", amount': 'order = "{order}", card = "{card}", note = "{note}", amount',
    "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
    'once = "Idempotency-Key" }': 'once = "Idempotency-Key", bearer = "shop_token" }',
    "payload = { name = { string = 40, public = true } }": (
        "payload = { name = { string = 40, public = true }, key = { string = 60, secret = true } }"
    ),
}
POLICY = (
    STANDARD_POLICY
    + """
@id("not-this-note") forbid (principal, action, resource is Order) when { resource.note like "*forbidden*" };
"""
)
_KILLED = """
import json, os, signal, sys
from issuer import Issuer
def observe(step):
    if step == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
issuer = Issuer.open(sys.argv[1], observe=observe)
issuer.commit(sys.argv[2])
"""


@dataclass(kw_only=True)
class Room:
    """One issuer with its service, and everything that anybody was told."""

    made: Made
    service: Service
    told: list[bytes] = field(default_factory=list)

    def document(self, order: str = "o-1", amount: int = 300, note: str = NOTE, **more: object) -> bytes:
        return json.dumps({"order": order, "amount": amount, "card": CARD, "note": note, **more}).encode()

    def heard(self, ran: Ran) -> Ran:
        self.told += [ran.out.encode(), ran.err.encode()]
        return ran

    def run(self, *arguments: str, stdin: bytes = b"") -> Ran:
        return self.heard(issuer_here(*arguments, at=self.made.folder, stdin=stdin))

    def request(self, stdin: bytes, *more: str) -> Ran:
        options = ("--task", "t1", "--actor", "agent-7", "--payload", "-", *more)
        return self.run("--json", "request", "refund", *options, stdin=stdin)

    def permitted(self, order: str = "o-1") -> str:
        ran = self.request(self.document(order))
        assert ran.code == "permitted", ran.out
        return ran.effect

    def assert_silent(self) -> None:
        """Search everything: what was told, files, the ledger's values one by one, the sink."""
        assert set().union(*map(found_in, self.told)) == set()
        seen = witness(self.made)
        assert found_in(seen.sink) == set()
        assert found_in(repr((seen.rows, seen.spans)).encode()) == set()
        values = b"\n".join(
            value if isinstance(value, bytes) else str(value).encode()
            for rows in seen.rows.values()
            for row in rows
            for value in row
        )
        assert found_in(values) == set()
        assert places_of(self.made.folder, leave_out=SPOKEN_TO) == {}


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY, changes=CHANGES)
        credential = made.folder / "credentials" / "shop_token"
        credential.write_text(TOKEN + "\n")
        credential.chmod(0o600)
        room = Room(made=made, service=service)
        yield room
        room.assert_silent()


@pytest.mark.parametrize("secret", CANARIES)
def test_the_search_finds_a_canary_in_every_form(secret: str) -> None:
    for form in forms(secret):
        assert found_in(b"before " + form + b" after") == {secret}
    assert found_in(json.dumps({"x": [secret]}).encode()) == {secret}
    assert found_in(b"CANARY and nothing else") == set()


@pytest.mark.spec("SEC-01", "EFF-10")
def test_the_service_is_told_what_it_needs_and_nobody_else_is(room: Room) -> None:
    room.service.then(answer(201, {"location": "/refunds/ref-1"}))
    effect = room.permitted()
    assert room.run("--json", "commit", effect).code == "succeeded"
    (received,) = room.service.requests
    assert received.headers["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(received.body)["card"] == CARD
    for words in (["show", effect], ["list"], ["audit", "timeline", effect], ["task", "show", "t1"]):
        for form in (["--json"], []):
            assert room.run(*words, *form).exit == 0
    told = json.loads(room.run("--json", "show", effect).out)
    assert len(told["record"]["binding_digest"]) == 64
    assert b"permit.binding.digest" in room.made.sink.read_bytes()


@pytest.mark.spec("SEC-01", "SEC-04", "EFF-05", "POL-06")
def test_no_refusal_repeats_what_was_said(room: Room) -> None:
    held = room.request(room.document(), "--request-key", "k-1").effect
    cases = [
        (room.request(room.document(extra=CARD)), "malformed"),
        (room.request(room.document() + TOKEN.encode()), "malformed"),
        (room.request(b'{"card": "' + CARD.encode() + b'", "card": "x"}'), "malformed"),
        (room.request(json.dumps({CARD: NOTE}).encode()), "malformed"),
        (room.request(room.document(card=CARD * 9)), "malformed"),
        (room.request(room.document(card=CARD + "\x07")), "malformed"),
        (room.request(room.document(note=f"{NOTE} forbidden")), "denied"),
        (room.request(room.document(amount=900)), "awaiting_approval"),
        (room.request(room.document(amount=9_000)), "budget_exceeded"),
        (room.request(room.document(note="another"), "--request-key", "k-1"), "request_key_reused"),
        (room.request(room.document(), "--request-key", TOKEN), "malformed"),
        (
            room.run("--json", "commit", held, "--payload", "-", stdin=room.document(card="another")),
            "mismatch",
        ),
        (room.run("--json", "commit", held, "--payload", "-", stdin=room.document(note=CARD)), "mismatch"),
        (room.run("--json", "commit", held, "--task", CARD), "mismatch"),
        (room.run("--json", "show", TOKEN), "not_found"),
        (room.run("--json", "report", held, "--claim", TOKEN, "--outcome", "succeeded"), "forbidden"),
    ]
    assert [ran.code for ran, _code in cases] == [code for _ran, code in cases]
    assert room.service.counts()["connections"] == 0


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (accept_then_close(), "outcome_unknown"),
        (garbage(), "outcome_unknown"),
        (answer(500, body=f'{{"error": "{TOKEN} {CARD}"}}'.encode()), "outcome_unknown"),
        (answer(402, body=CARD.encode()), "no_effect"),
        (answer(409, {"x-echo": TOKEN}, body=NOTE.encode()), "failed"),
        (answer(302, {"location": f"/{TOKEN}"}, effect=False), "outcome_unknown"),
        (raw(f"HTTP/1.1 {TOKEN}\r\n\r\n".encode()), "outcome_unknown"),
    ],
)
@pytest.mark.spec("SEC-01", "REP-05")
def test_an_answer_that_is_lost_or_echoes_secrets_leaves_none_behind(
    room: Room, step: object, code: str
) -> None:
    room.service.then(step)  # type: ignore[arg-type]
    effect = room.permitted()
    assert room.run("--json", "commit", effect).code == code
    assert room.run("--json", "commit", effect).code == code
    for words in (["show", effect], ["audit", "timeline", effect]):
        assert room.run("--json", *words).exit == 0


@pytest.mark.parametrize("content", [TOKEN + "\r\nX: y", "", TOKEN + "\x00", "\udcff" + TOKEN])
@pytest.mark.spec("SEC-01", "REP-04")
def test_a_credential_that_cannot_be_used_is_not_quoted(room: Room, content: str) -> None:
    path = room.made.folder / "credentials" / "shop_token"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    effect = room.permitted()
    assert room.run("--json", "commit", effect).code == "not_dispatched"
    assert room.service.counts()["requests"] == 0


@pytest.mark.spec("SEC-01", "REP-04")
def test_a_service_that_is_not_there_is_not_told_of_with_secrets(room: Room) -> None:
    text = room.made.profile.read_text()
    with closed_port() as port:
        room.made.profile.write_text(text.replace(f":{room.service.port}/", f":{port}/"))
        activated(room.made.profile)
        effect = room.permitted()
        ran = room.heard(issuer_process("commit", effect, "--json", at=room.made.folder))
    assert (ran.code, ran.err) == ("not_dispatched", "")


@pytest.mark.parametrize("step", ["committed", "answered"])
@pytest.mark.spec("SEC-01", "LED-01")
def test_a_killed_process_leaves_no_secret_behind(room: Room, step: str) -> None:
    room.service.then(answer(201))
    effect = room.permitted()
    command = [sys.executable, "-c", _KILLED, str(room.made.profile), effect, step]
    done = subprocess.run(
        command,
        cwd=room.made.folder,
        env=environment({}),
        capture_output=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    room.told += [done.stdout, done.stderr]
    assert places_of(room.made.folder, leave_out=SPOKEN_TO) == {}
    assert room.run("--json", "show", effect).exit == 0
    assert room.run("--json", "commit", effect).code in {"outcome_unknown", "succeeded"}


@pytest.mark.spec("SEC-01", "REC-07")
def test_a_hosts_own_command_may_say_what_it_wants_and_nothing_of_it_is_kept(room: Room) -> None:
    options = ("--task", "t1", "--actor", "agent-7", "--payload", "-", "--json")
    document = json.dumps({"name": "v1", "key": CARD}).encode()
    codes = []
    for script in (f"echo '{TOKEN}'", f"echo '{TOKEN}' >&2; exit 3"):
        asked = room.run("request", "publish", *options, stdin=document)
        # Its output is the host's own and goes to standard error, so only standard output is searched here.
        ran = issuer_process(
            "dispatch", asked.effect, "--json", "--", "sh", "-c", script, at=room.made.folder
        )
        room.told.append(ran.out.encode())
        codes.append(ran.code)
        assert TOKEN in ran.err
    assert codes == ["succeeded", "outcome_unknown"]


def _raised(issuer: Issuer, payload: object) -> bytes:
    """Ask with what no document could hold; return what was answered or raised, with its whole trace in words."""
    answered: Answer | BaseException
    try:
        answered = issuer.request("refund", payload, task="t1", actor="agent-7")  # type: ignore[arg-type]
    except Exception as fault:  # noqa: BLE001 - whatever it is, it may not quote
        answered = fault
    return repr(answered).encode()


@pytest.mark.spec("SEC-01", "EFF-05")
def test_the_python_api_quotes_nothing_either(room: Room) -> None:
    class Text(str):
        __slots__ = ()

    whole = {"order": "o-1", "amount": 300, "card": CARD, "note": NOTE}
    payloads: list[object] = [
        {**whole, "card": Text(CARD)},
        {**whole, "card": CARD.encode()},
        {**whole, "note": [NOTE]},
        {**whole, "amount": float("nan")},
        {**whole, CARD: 1},
        dict.fromkeys([*whole, 1], CARD),
        CARD,
        [CARD],
    ]
    with room.made.open() as issuer:
        told = [_raised(issuer, payload) for payload in payloads]
        told.append(_raised(issuer, whole))
    room.told += told
    assert all(b"malformed" in one for one in told[: len(payloads)])
    assert b"permitted" in told[-1]
