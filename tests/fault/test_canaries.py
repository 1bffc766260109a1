"""A canary in every non-public input, found in no output (SEC-01, D15): one world in which everything happens once.

`PLANTED` names each input with its canary; the world uses them in success, refusals, a lost answer, a killed process,
approvals, reconciling, key changes, a backup and a collection. `OUTPUTS` names what was left, and each is searched for
every canary in every form. Only whom something is meant for is told it: the service, a child, an approver who reads a
sensitive field; that is kept apart in `meant`.
"""

import base64
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest

from audit import LedgerSpans
from audit.otlp import request_bytes
from issuer import Issuer
from tests.support.approving import POLICY, Office, opened_office
from tests.support.canaries import found_in, places_of
from tests.support.issuers import Made, permitted
from tests.support.service import accept_then_close, answer, garbage
from tests.support.shell import PROCESS_S, environment, issuer_here, issuer_process
from tests.support.witness import witness

PLANTED = {
    "credential of a service": "sk-CANARY-01-bearer/+a=?",
    "secret field": "CANARY-02-card 4000 &é",
    "sensitive field": "CANARY-03-note ana@x",
    "secret field of a host's operation": "CANARY-04-publish",
    "content of a file": "CANARY-05-words",
    "sensitive field in a resource's name": "CANARY-06-path",
    "comment of a person's key": "CANARY-07-comment",
    "environment": "CANARY-08-variable",
    "argument of a child": "CANARY-09-argv",
    "output of a child": "CANARY-10-stdout",
    "header of an answer": "CANARY-11-header",
    "body of an answer": "CANARY-12-body",
    "status line of an answer": "CANARY-13-status",
    "garbage on standard input": "CANARY-14-garbage",
    "name of a field": "CANARY-15-field",
    "reason of an operator": "CANARY-16 free text",
    "reason of an approver": "CANARY-17 free text",
    "text of an exception": "CANARY-18-raised",
    "reference that is none": "CANARY-19-effect",
    "signature that is none": "CANARY-20-signature",
    "token that is none": "pit_host_till_CANARY-21",
    "claim that is none": "clm_CANARY-22",
}
ALL = tuple(PLANTED.values())
APPROVERS_READ = frozenset({PLANTED["sensitive field"], PLANTED["sensitive field in a resource's name"]})
FILES_OF = {
    "credentials": "the owner's own files",
    "outbox": "where the file is written that was asked for",
    "people": "the owner's own files",
}
CHANGES = {
    "[class.refund]": (
        '[host]\ntill = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }\n'
        '[notify.desk]\nspool = "told"\non = ["awaiting_approval", "outcome_unknown", "frozen"]\n[class.refund]'
    ),
    'order = "{order}", amount': 'order = "{order}", card = "{card}", note = "{note}", amount',
    'id = "{order}" }': 'id = "{order}/{note}" }',
    '/refunds", once': '/refunds/{note}?who={note}", once',
    "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
    'once = "Idempotency-Key" }': 'once = "Idempotency-Key", bearer = "shop_token" }',
    'key_kept = "24h" }': 'key_kept = "24h", reference = "/id" }\nnotify = ["desk"]',
    "payload = { name = { string = 40, public = true } }": (
        "payload = { name = { string = 40, public = true }, key = { string = 60, secret = true } }"
    ),
    "[operation.publish]": """[operation.leave]
class = "refund"
resource = { type = "Paper", id = "{path}" }
payload = { path = { string = 60 }, words = { string = 200, secret = true } }
cost = { "USD.cent" = 1 }
file = { action = "create", root = "outbox", path = "{path}", content = "{words}" }
[operation.publish]""",
}
LEAVES = """
@id("papers") permit (principal is Actor, action == Action::"issue", resource is Paper);
"""
_KILLED = """
import os, signal, sys
from issuer import Issuer
def observe(step):
    if step == "answered":
        os.kill(os.getpid(), signal.SIGKILL)
Issuer.open(sys.argv[1], observe=observe).commit(sys.argv[2])
"""


@dataclass(kw_only=True)
class World:
    """What happened, and everything that it left."""

    office: Office
    outputs: dict[str, list[bytes]] = field(default_factory=dict)
    meant: list[bytes] = field(default_factory=list)
    turns: int = 0
    live: dict[str, str] = field(default_factory=dict)
    """Secrets that the issuer drew itself, by what they are."""

    def kept(self, what: str, value: object) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        self.outputs.setdefault(what, []).append(data)

    def said(self, told: object) -> object:
        """Keep an answer as JSON and as Python shows it."""
        self.kept("answers", told.as_json())  # type: ignore[attr-defined]
        self.kept("answers", repr(told).encode())
        return told

    def run(self, *words: str, stdin: bytes = b"") -> str:
        """Run the command line in this process, by turns for people and for machines; return the code."""
        self.turns += 1
        form = ["--json"] if self.turns % 2 else []
        ran = issuer_here(*form, *words, at=self.office.made.folder, stdin=stdin)
        self.kept("standard output", ran.out.encode())
        self.kept("standard error", ran.err.encode())
        return ran.code if form else ran.out.split(maxsplit=1)[0]

    @property
    def issuer(self) -> Issuer:
        return self.office.issuer

    def refund(self, order: str, amount: int = 300, **more: object) -> str:
        payload = {
            "order": order,
            "amount": amount,
            "card": PLANTED["secret field"],
            "note": PLANTED["sensitive field"],
        }
        told = self.issuer.request("refund", payload, task="t1", actor="agent-7", **more)  # type: ignore[arg-type]
        self.said(told)
        return str(told.effect)

    def publish(self, name: str) -> str:
        payload = {"name": name, "key": PLANTED["secret field of a host's operation"]}
        told = self.issuer.request("publish", payload, task="t1", actor="agent-7")
        self.said(told)
        return permitted(told)


class _Loud:
    """A value whose every use raises, with a canary in the text."""

    def __str__(self) -> str:
        raise ValueError(PLANTED["text of an exception"])

    __repr__ = __hash__ = __len__ = __iter__ = __str__  # type: ignore[assignment]


def _echoes(text: str) -> list[str]:
    """Return what a service may make of a value that it was sent, and call its own reference."""
    data = text.encode()
    return [
        text,
        f"refunds/{text}/1",
        f"refunds/{quote(text)}/1",
        quote(text, safe="").lower(),
        text.replace(" ", "+").replace("@", "%40"),
        text.upper(),
        base64.b64encode(data).decode(),
        "x." + base64.urlsafe_b64encode(data).decode().rstrip("="),
        data.hex(),
    ]


def play_services(world: World) -> None:
    """Success, a no, echoes, a lost answer, garbage, and a process that is killed after the answer."""
    service, issuer = world.office.service, world.issuer
    header, body = PLANTED["header of an answer"], PLANTED["body of an answer"]
    echoes = [
        *_echoes(PLANTED["sensitive field"]),
        *_echoes(PLANTED["credential of a service"]),
        *_echoes(PLANTED["secret field"]),
    ]
    service.then(
        answer(201, {"location": "/refunds/ref-1", "x-more": header}, body=body.encode()),
        *(answer(201, body=json.dumps({"id": told}).encode()) for told in echoes),
        answer(409, {"x-more": PLANTED["credential of a service"]}, body=PLANTED["secret field"].encode()),
        answer(500, {"x-more": header}, body=body.encode()),
        accept_then_close(),
        garbage(PLANTED["status line of an answer"].encode() + b"\r\n\r\n"),
    )
    effects = [world.refund(f"o-{number}", 1) for number in range(6 + len(echoes))]
    for effect in effects:
        world.said(issuer.commit(effect))
    for effect in (*effects[:2], *effects[-5:]):
        for act in (issuer.commit, issuer.show, issuer.timeline):
            world.said(act(effect))
    killed = world.refund("o-killed", 1)
    service.then(answer(201))
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(world.office.made.profile), killed],
        cwd=world.office.made.folder,
        env=environment({}),
        capture_output=True,
        timeout=PROCESS_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    world.kept("standard error", done.stderr)
    unknown = effects[-2]
    world.said(issuer.acknowledge(unknown, reason=PLANTED["reason of an operator"]))
    world.said(issuer.reconcile(unknown))
    world.said(issuer.acknowledge(unknown, reason="lost", charge=True))


def play_refusals(world: World) -> None:
    """Whatever can be said wrongly, by everybody who can say it."""
    issuer = world.issuer
    nothing, stray = PLANTED["reference that is none"], PLANTED["garbage on standard input"]
    options = ("--task", "t1", "--actor", "agent-7", "--payload", "-")
    documents = [
        stray.encode(),
        b'{"order": "o", "card": ' + stray.encode() + b"}",
        b"\xff\xfe" + stray.encode(),
        b'{"order": "' + stray.encode() + b'", "order": "x"}',
        json.dumps({PLANTED["name of a field"]: stray}).encode(),
        json.dumps([stray]).encode(),
        b"[" * 100 + stray.encode(),
    ]
    for document in documents:
        assert world.run("request", "refund", *options, stdin=document) == "malformed"
    for act in (issuer.show, issuer.commit, issuer.admit, issuer.withdraw, issuer.timeline, issuer.reconcile):
        world.said(act(nothing))
    for value in (_Loud(), {"order": _Loud()}, {"order": [stray]}, stray.encode(), {1: stray}):
        try:
            world.said(issuer.request("refund", value, task="t1", actor="agent-7"))  # type: ignore[arg-type]
        except Exception as fault:  # noqa: BLE001 - whatever is raised must be silent too
            raised = fault
            with suppress(ValueError):
                world.kept("exceptions", f"{type(raised)}".encode())
    held = world.refund("o-held", 1, hold=True)
    world.said(issuer.commit(held, payload={"order": "o-held", "amount": 1, "card": stray, "note": stray}))
    sent = world.publish("v-claim")
    world.said(issuer.report(sent, PLANTED["claim that is none"], succeeded=True))
    world.said(issuer.revoke("effect", sent, reason=PLANTED["reason of an operator"]))
    world.said(issuer.freeze("actor", "agent-8", reason=PLANTED["reason of an operator"]))
    world.said(issuer.as_caller(token=PLANTED["token that is none"]).show(sent))
    wrong = world.office.made.folder / "credentials" / "wrong"
    wrong.write_text(PLANTED["token that is none"])
    wrong.chmod(0o600)
    assert world.run("--token", "credentials/wrong", "show", sent) == "unauthenticated"


def play_people(world: World) -> None:
    """An approval, a decline, and what is no signature."""
    office = world.office
    yes, no = (world.refund(f"o-people-{one}", 900) for one in ("yes", "no"))
    statement = office.statement(yes)
    world.meant.append(statement)
    world.said(office.issuer.approve(yes, PLANTED["signature that is none"]))
    world.said(office.issuer.approve(yes, office.signature("bob", statement)))
    world.said(office.issuer.decline(no, "x", reason=PLANTED["reason of an approver"]))
    world.said(office.decline(no, "bob"))
    world.said(office.issuer.approvals())
    shown = office.issuer.show(yes, content=True)
    world.meant.append(json.dumps(shown.as_json(), ensure_ascii=False).encode())


def play_hosts(world: World) -> None:
    """Children, claims, tokens and files."""
    issuer = world.issuer
    words = PLANTED["argument of a child"], PLANTED["output of a child"]
    for number, end in enumerate(("0", "3")):
        effect = world.publish(f"v{number}")
        script = f"echo {words[1]}; echo {words[1]} >&2; exit {end}"
        ran = issuer_process(
            "dispatch", effect, "--json", "--", "sh", "-c", script, words[0], at=world.office.made.folder
        )
        world.kept("standard output", ran.out.encode())
        world.meant.append(ran.err.encode())
    told = issuer.host_token("till")
    world.live["token of a host"] = str(told.more["token"]).rpartition("_till_")[2]
    host = issuer.as_caller(token=str(told.more["token"]))
    effect = permitted(host.request("publish", {"name": "h", "key": "k"}, task="t1", actor="agent-7"))
    claim = str(host.admit(effect).more["claim"])
    world.live["claim"] = claim
    world.said(host.report(effect, claim + "0", succeeded=True))
    world.said(host.report(effect, claim, succeeded=True))
    world.said(host.show(effect))
    path = PLANTED["sensitive field in a resource's name"]
    for _again in range(2):
        payload = {"path": path, "words": PLANTED["content of a file"]}
        told = issuer.request("leave", payload, task="t1", actor="agent-7")
        world.said(told)
        if told.code == "permitted":
            world.said(issuer.commit(permitted(told)))
    assert (world.office.made.folder / "outbox" / path).read_text() == PLANTED["content of a file"]
    world.said(issuer.audit_hash("Paper", path))


def play_operators(world: World) -> None:
    """Looking, keys, a backup, a collection, the checks; and what the ledger's files hold while they are open."""
    issuer, folder = world.issuer, world.office.made.folder
    for told in (
        issuer.list(),
        issuer.task_show("t1"),
        issuer.audit_changes(),
        issuer.revisions(),
        issuer.keys_rotate(),
        issuer.keys_list(),
        issuer.ledger_collect(early=True),
    ):
        world.said(told)
    backup = folder.parent / "backup"
    for words in (
        ("ledger", "backup", str(backup)),
        ("ledger", "check"),
        ("ledger", "stats"),
        ("doctor",),
        ("list",),
    ):
        world.run(*words)
    world.kept("backup", backup.read_bytes())
    for path in sorted(world.office.made.ledger.parent.iterdir()):
        if path.is_file():
            # By another process: a file that is closed here would take the ledger's locks with it.
            read = subprocess.run(["cat", str(path)], capture_output=True, check=True, timeout=PROCESS_S)
            world.kept(f"ledger folder: {path.name}", read.stdout)
    rows = LedgerSpans(issuer._house.ledger).spans_after(0, limit=100_000)
    world.kept("spans", b"\n".join(row.body for row in rows))
    world.kept("otlp", request_bytes(row.body for row in rows))
    play_reviewers(world)


def play_reviewers(world: World) -> None:
    """Every question, and everything that can be carried away in a file."""
    issuer, taken = world.issuer, world.office.made.folder.parent / "taken"
    taken.mkdir()
    effect = json.loads(world.outputs["answers"][0])["effect"]
    for form in ("table", "jsonl", "csv", "otlp-json"):
        world.said(issuer.audit_query(form=form))
        world.said(issuer.audit_unknowns(form="table" if form == "otlp-json" else form))
    for told in (
        issuer.audit_checkpoint(),
        issuer.audit_key(),
        issuer.audit_access(),
        issuer.audit_approvals(),
        issuer.audit_denied_then_done(),
        issuer.audit_export(taken / "spans.jsonl"),
        issuer.audit_export(taken / "spans.otlp", form="otlp-json"),
        issuer.audit_export(taken / "spans.csv", form="csv"),
        issuer.audit_report(out=taken / "report"),
        issuer.audit_snapshot(taken / "snapshot.db"),
        issuer.audit_prove(effect, taken / "proof"),
    ):
        world.said(told)
        assert told.exit == 0, told
    for path in sorted(taken.iterdir()):
        world.kept("files of reviewers", path.read_bytes())
    assert len(list(taken.iterdir())) >= len(
        ("spans.jsonl", "spans.otlp", "spans.csv", "report", "snapshot.db", "proof")
    )
    for path in sorted(world.office.made.sink.parent.parent.rglob("*")):
        if path.is_file():
            world.kept("files outside the issuer's folder", path.read_bytes())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Play everything once."""
    logged: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(f"{record.getMessage()} {record.args} {record.exc_info}")

    handler = Keeping(level=logging.DEBUG)
    variable = PLANTED["environment"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"service.name=x,api.key={variable}")
        patch.setenv("OTEL_SERVICE_NAME", variable)
        patch.setenv("SHOP_PASSWORD", variable)
        logging.getLogger().addHandler(handler)
        level = logging.getLogger().level
        logging.getLogger().setLevel(logging.DEBUG)
        folder = tmp_path_factory.mktemp("canaries") / "f0"
        try:
            with opened_office(folder, policy=POLICY + LEAVES, changes=CHANGES) as office:
                world = World(office=office)
                (folder / "credentials" / "shop_token").write_text(PLANTED["credential of a service"] + "\n")
                (folder / "credentials" / "shop_token").chmod(0o600)
                (folder / "outbox").mkdir(mode=0o700)
                for play in (play_services, play_refusals, play_people, play_hosts, play_operators):
                    play(world)
            _witnessed(world, office.made)
            world.kept("logs", "\n".join(logged).encode())
            yield world
        finally:
            logging.getLogger().removeHandler(handler)
            logging.getLogger().setLevel(level)


def _witnessed(world: World, made: Made) -> None:
    """Keep what anybody can read of it: the sink, every column, and every other file."""
    seen = witness(made)
    world.kept("sink", seen.sink)
    world.kept("spans", repr(seen.spans).encode())
    for table, rows in seen.rows.items():
        values = (value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
        world.kept(f"table {table}", b"\n".join(values))
    told = made.folder / "told"
    until = time.monotonic() + PROCESS_S
    while not any(told.glob("[!.]*")) and time.monotonic() < until:
        time.sleep(0.05)  # the courier is another process, and beside the work
    world.kept("notices", b"\n".join(path.read_bytes() for path in sorted(told.glob("[!.]*"))))
    protected = [path for path in made.folder.rglob("*") if path.is_file() and "protected" in str(path)]
    world.kept("protected store", b"\n".join(path.read_bytes() for path in protected))


WANTED = (
    *("answers", "standard output", "standard error", "sink", "spans", "otlp", "backup", "notices", "logs"),
    *("protected store", "files of reviewers", "files outside the issuer's folder"),
    *(
        "ledger folder: ledger.sqlite",
        "ledger folder: ledger.sqlite-wal",
        "ledger folder: ledger.sqlite.lock",
    ),
    *("table effects", "table evidence", "table tombstones", "table rulings"),
)


@pytest.mark.spec("SEC-01", "SEC-04", "EFF-10")
@pytest.mark.parametrize("what", WANTED)
def test_no_canary_is_in(world: World, what: str) -> None:
    assert world.outputs[what]
    secrets = (*ALL, *world.live.values())
    found = {secret for data in world.outputs[what] for secret in found_in(data, secrets)}
    assert {name for name, secret in {**PLANTED, **world.live}.items() if secret in found} == set()


@pytest.mark.spec("SEC-01", "LED-03")
def test_no_canary_is_in_any_other_output_or_file(world: World) -> None:
    assert set(WANTED) <= set(world.outputs)
    rest = {what: data for what, data in world.outputs.items() if what not in WANTED}
    found = {what for what, several in rest.items() if any(found_in(one, ALL) for one in several)}
    assert found == set()
    places = places_of(world.office.made.folder, leave_out=FILES_OF)
    assert places == {}


@pytest.mark.spec("EFF-10", "APP-02")
def test_whom_something_is_meant_for_is_told_that_and_no_secret(world: World) -> None:
    told = {secret for data in world.meant for secret in found_in(data, ALL)}
    assert told == {PLANTED["sensitive field"], PLANTED["output of a child"]}


@pytest.mark.spec("SEC-01", "EFF-03", "AUD-07")
def test_what_stands_for_them_is_there_all_the_same(world: World) -> None:
    spans = world.outputs["spans"][0]
    for name in (b"permit.binding.digest", b"permit.content.key", b"permit.resource.key", b'"hidden:'):
        assert name in spans
    received = b"\n".join(
        one.path.encode() + str(one.headers).encode() + one.body for one in world.office.service.requests
    )
    sent = {"credential of a service", "secret field", "sensitive field"}
    assert {name for name in sent if found_in(received, (PLANTED[name],))} == sent
    states = {told.decode() for told in world.outputs["answers"] if b'"code"' in told}
    codes = {json.loads(told)["code"] for told in states}
    assert {
        *("succeeded", "failed", "outcome_unknown", "permitted", "prepared", "awaiting_approval"),
        *("malformed", "mismatch", "not_found", "declined_now", "unauthenticated", "signature_refused"),
    } <= codes


@pytest.mark.spec("SEC-01", "SEC-03")
def test_the_bytes_of_the_keys_are_in_the_folder_of_the_keys_and_nowhere_else(world: World) -> None:
    folder = world.office.made.folder / "keys"
    keys = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.stat().st_size >= 32]
    roots = {data[start : start + 32] for data in keys for start in range(0, len(data) - 31, 16)}
    assert roots
    everything = b"\n".join(data for several in world.outputs.values() for data in several)
    assert not [root for root in roots if root in everything or root.hex().encode() in everything]
