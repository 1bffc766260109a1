"""The six acts of `issuer demo`. Every line that tells of an answer prints that answer; nothing is canned.

It checks itself: where an act does not end as it should, the demo says so and ends with exit code 1.
"""

import os
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from issuer.api import Issuer
from issuer.clock import now_ms
from issuer.demo.service import DemoService
from issuer.places import AUDIT_FILE
from issuer.setup import initialise
from issuer.wire import Answer
from ledger.model import InstantMs

HOUR_MS: Final = 3_600_000
_TASK: Final = "ap-today"

Say = Callable[[str], None]


class _Stage:
    """What the acts share: the issuer, the service, where things are, and how lines are said."""

    def __init__(self, issuer: Issuer, service: DemoService, folder: Path, say: Say) -> None:
        self.issuer = issuer
        self.service = service
        self.sink = folder / "audit" / AUDIT_FILE
        self.receipt = folder / "receipts" / "R-118.txt"
        self.say = say
        self.is_as_promised = True

    def payload(self, number: str, cents: int) -> Mapping[str, object]:
        return {"vendor": "hetzner", "number": number, "amount_cents": cents}

    def request(self, number: str, cents: int) -> Answer:
        return self.issuer.request("pay_invoice", self.payload(number, cents), task=_TASK, actor="ap-bot")

    def tell(self, command: str, answer: Answer, note: str) -> None:
        self.say(f"     {command:<8}-> {answer.code}: {note}")

    def expect(self, answer: Answer, code: str, *, asked: int) -> None:
        """Note whether the act ended as promised: this code, and this many requests at the service in all."""
        if answer.code != code or self.service.asked != asked:
            self.is_as_promised = False
            self.say(f"     NOT AS PROMISED: expected {code} and {asked} requests, saw {self.service.asked}")

    @property
    def asked(self) -> str:
        count = self.service.asked
        return f"the service has been asked {count} time{'' if count == 1 else 's'}"

    def budget(self, task: str) -> str:
        shown = self.issuer.task_show(task).more["task"]
        line = shown["budget"]["EUR.cent"]  # type: ignore[index]
        return f"{task} has {_euros(line['settled'])} spent and {_euros(line['reserved'])} held"


def _euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d} EUR"


def run_demo(folder: Path, say: Say) -> int:
    """Play the six acts in the empty `folder`; return 0 where every act ended as promised, else 1."""
    with DemoService() as service:
        _make(folder, service.port)
        with Issuer.open(folder / "profile.toml") as issuer:
            stage = _Stage(issuer, service, folder, say)
            _open_tasks(stage)
            paid = _act_1_paid_once(stage)
            _act_2_the_same_again(stage, paid)
            _act_3_one_cent_more(stage)
            _act_4_over_budget(stage)
            _act_5_reply_lost(stage)
            _act_6_sink_gone(stage)
            _close(stage)
            return 0 if stage.is_as_promised else 1


def _make(folder: Path, port: int) -> None:
    """Make the demo's issuer; its audit file stays below `folder` too, so that nothing is left behind."""
    data = resources.files("issuer.demo")
    text = data.joinpath("profile.toml").read_text(encoding="utf-8")
    text = text.replace("@UID@", str(os.getuid())).replace("@PORT@", str(port))
    text = text.replace('path = "audit"', f'path = "{folder / "audit"}"')
    (folder / "policies").mkdir(parents=True)
    (folder / "profile.toml").write_text(text, encoding="utf-8")
    policy = data.joinpath("payments.cedar").read_text(encoding="utf-8")
    (folder / "policies" / "payments.cedar").write_text(policy, encoding="utf-8")
    (folder / "receipts").mkdir(mode=0o700)
    initialise(folder, uid=os.getuid())


def _open_tasks(stage: _Stage) -> None:
    until = InstantMs(now_ms() + HOUR_MS)
    stage.issuer.task_open(
        "payables",
        subject="dana",
        actors=["ap-bot"],
        budget={"EUR.cent": 100_000, "receipt": 9},
        classes=dict.fromkeys(stage.issuer.classes, 100),
        expires_ms=until,
    )
    stage.issuer.task_open(
        _TASK, parent="payables", budget={"EUR.cent": 60_000, "receipt": 9}, expires_ms=until
    )
    stage.say("A real issuer in a temporary folder, and a small payment service on this machine; no network.")
    stage.say("Policy: ap-bot may pay up to 500.00 EUR by itself. Task ap-today may spend 600.00 EUR,")
    stage.say("and payables, the task above it, 1000.00 EUR.")


def _act_1_paid_once(stage: _Stage) -> str:
    stage.say("\n1  Pay 149.50 EUR for invoice R-118: permitted by the owner's policy, sent once")
    asked = stage.request("R-118", 14_950)
    stage.tell("request", asked, "nothing may be sent yet")
    done = stage.issuer.commit(asked.effect or "")
    stage.tell("commit", done, stage.asked)
    stage.expect(done, "succeeded", asked=1)
    receipt = {"number": "R-118", "text": "paid 149.50 EUR to hetzner\n"}
    filed = stage.issuer.request("file_receipt", receipt, task=_TASK, actor="ap-bot")
    written = stage.issuer.commit(filed.effect or "")
    stage.tell(
        "commit", written, "its receipt, a new file: " + stage.receipt.read_text(encoding="utf-8").strip()
    )
    stage.expect(written, "succeeded", asked=1)
    story = stage.issuer.timeline(asked.effect or "").more["timeline"]
    for entry in story:  # type: ignore[attr-defined]
        told = _story_words(entry["attributes"])
        stage.say(f"     {entry['at'][11:23]}  {entry['name'].removeprefix('effect.'):<10}{told}")
    return asked.effect or ""


def _story_words(attributes: Mapping[str, object]) -> str:
    words = {
        "permit.cost": "at most",
        "permit.policy.ids": "policy",
        "permit.reservation": "holds",
        "permit.evidence.source": "on the word of",
    }
    told = [
        f"{word} {' '.join(value) if isinstance(value, list) else value}"
        for name, word in words.items()
        if (value := attributes.get(name))
    ]
    return ", ".join(told)


def _act_2_the_same_again(stage: _Stage, effect: str) -> None:
    stage.say("\n2  The same again: the permit is spent")
    again = stage.issuer.commit(effect)
    stage.tell("commit", again, f"the recorded outcome; nothing was sent again, {stage.asked}")
    stage.expect(again, "succeeded", asked=1)
    anew = stage.request("R-118", 14_950)
    stage.tell("request", anew, f'policy never-twice-by-itself says "{anew.say}"')
    stage.expect(anew, "denied", asked=1)


def _act_3_one_cent_more(stage: _Stage) -> None:
    stage.say("\n3  One cent more than was permitted")
    asked = stage.request("R-119", 20_000)
    more = stage.issuer.commit(asked.effect or "", payload=stage.payload("R-119", 20_001))
    stage.tell("commit", more, f"field {more.more.get('field')}; {stage.asked}")
    stage.expect(more, "mismatch", asked=1)


def _act_4_over_budget(stage: _Stage) -> None:
    stage.say("\n4  500.00 EUR, of which the task has 450.50 EUR left")
    over = stage.request("R-120", 50_000)
    stage.tell("request", over, f"at level {over.more.get('level')}; {stage.asked}")
    stage.expect(over, "budget_exceeded", asked=1)


def _act_5_reply_lost(stage: _Stage) -> None:
    stage.say("\n5  The service books the payment and its reply is lost")
    asked = stage.request("R-121", 10_000)
    stage.service.loses_next_reply = True
    lost = stage.issuer.commit(asked.effect or "")
    stage.tell("commit", lost, stage.budget(_TASK))
    stage.expect(lost, "outcome_unknown", asked=2)
    again = stage.issuer.commit(asked.effect or "")
    stage.tell("commit", again, f"never sent again; {stage.asked}, {stage.budget('payables')}")
    stage.expect(again, "outcome_unknown", asked=2)


def _act_6_sink_gone(stage: _Stage) -> None:
    stage.say("\n6  The audit file disappears: no span, no dispatch")
    asked = stage.request("R-122", 5_000)
    hidden = stage.sink.with_suffix(".away")
    stage.sink.rename(hidden)
    gone = stage.issuer.commit(asked.effect or "")
    stage.tell("commit", gone, f"nothing was sent, {stage.asked}, the permit is untouched")
    stage.expect(gone, "audit_unavailable", asked=2)
    hidden.rename(stage.sink)
    back = stage.issuer.commit(asked.effect or "")
    stage.tell("commit", back, f"with the file back in its place; {stage.asked}")
    stage.expect(back, "succeeded", asked=3)


def _close(stage: _Stage) -> None:
    stage.say("\nNext:")
    stage.say("  issuer init my-issuer          an issuer of your own: profile, policies, keys, ledger")
    stage.say("  issuer request --help          how an agent or a script asks for a permit")
    stage.say("  issuer audit timeline EFFECT   the whole story of one effect")
