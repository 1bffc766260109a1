"""Approvals on the command line: a person reads, signs with their own key, and sees what came of it."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.model import EffectId
from tests.support.approving import Office, opened_office, waiting
from tests.support.cases import HOUSE, PATIENCE_S, PROGRAM, command, small_tree, state_of
from tests.support.issuers import refund
from tests.support.shell import environment
from tests.support.ssh import needs_ssh_keygen


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened_office(tmp_path_factory.mktemp("cli") / "f0") as opened:
        yield opened


def ask(office: Office, name: str) -> str:
    task, _root = small_tree(office.issuer, name)
    return waiting(refund(office.issuer, amount=900, task=task))


def run(office: Office, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [*PROGRAM, "--profile", str(office.made.profile), *arguments]
    return subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        check=False,
        cwd=HOUSE,
        env=environment({}),
        timeout=PATIENCE_S,
    )


@pytest.mark.spec("APP-01", "APP-02", "SUR-01", "SUR-03")
def test_the_exact_bytes_are_printed_signed_elsewhere_and_handed_in(office: Office) -> None:
    effect = ask(office, "elsewhere")
    listed = run(office, "approvals")
    assert b"9.00 USD" in listed.stdout
    assert b"it takes 1 of finance; yes from nobody yet; until " in listed.stdout
    printed = run(office, "statement", effect)
    assert printed.returncode == 0
    assert printed.stdout == office.statement(effect)
    signature = office.signature("bob", printed.stdout).encode()
    told = command(office.made, "approve", effect, "--signature", "-", stdin=signature)
    assert (told.exit, told.answer["code"], told.answer["state"]) == (0, "permitted", "permitted")
    again = command(office.made, "approve", effect, "--signature", "-", stdin=signature)
    assert (again.exit, again.answer["code"]) == (7, "nothing_to_change")


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "APP-02")
def test_a_key_signs_what_was_shown_for_each_effect_and_several_at_once(office: Office) -> None:
    effects = [ask(office, "first"), ask(office, "second")]
    nobody = run(office, "approve", effects[0], "--key", str(office.keys["bob"]))
    assert nobody.returncode == 2
    assert b"Nobody is at a terminal" in nobody.stderr
    assert state_of(office.issuer, effects[0]) == "awaiting_approval"
    done = run(office, "--json", "approve", *effects, "--key", str(office.keys["bob"]), "--yes")
    answers = json.loads(done.stdout)["answers"]
    assert [(row["effect"], row["code"]) for row in answers] == [(one, "permitted") for one in effects]
    assert b"cost_at_most: 9.00 USD (900 USD.cent)" in done.stderr


@needs_ssh_keygen
@pytest.mark.spec("APP-05", "SUR-03")
def test_a_no_and_a_withdrawal(office: Office) -> None:
    first, second = ask(office, "no"), ask(office, "back")
    key = str(office.keys["carol"])
    done = run(office, "--json", "decline", first, "--reason", "suspicious", "--key", key, "--yes")
    assert json.loads(done.stdout)["code"] == "declined_now"
    assert b'reason: "suspicious"' in done.stderr
    assert state_of(office.issuer, first) == "declined"
    told = command(office.made, "withdraw", second)
    assert (told.exit, told.answer["code"], told.answer["state"]) == (0, "withdrawn_now", "withdrawn")


@pytest.mark.spec("SUR-02")
@pytest.mark.parametrize(
    "words",
    [
        ("approve", "eff_x"),
        ("approve", "a", "b", "--signature", "x"),
        ("approve", "a", "--signature", "x", "--key", "y"),
    ],
)
def test_what_is_typed_wrong_is_told(words: tuple[str, ...], office: Office) -> None:
    assert run(office, *words).returncode == 2


@needs_ssh_keygen
@pytest.mark.spec("APP-01", "APP-02")
@pytest.mark.parametrize(("typed", "state"), [(b"no\n", "awaiting_approval"), (b"yes\n", "permitted")])
def test_at_a_terminal_a_person_reads_and_types_yes(
    typed: bytes, state: str, office: Office, tmp_path: Path
) -> None:
    effect = ask(office, f"terminal-{state}")
    leader, follower = pty.openpty()
    words = [*PROGRAM, "--profile", str(office.made.profile), "approve", effect]
    try:
        process = subprocess.Popen(
            [*words, "--key", str(office.keys["dan"])],
            stdin=follower,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=HOUSE,
            env=environment({}),
        )
        os.write(leader, typed)
        _out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(leader)
        os.close(follower)
    assert b"payload.amount: 900" in err
    assert state_of(office.issuer, effect) == state


@pytest.mark.spec("APP-03", "SUR-05")
def test_a_request_waits_until_people_have_answered(office: Office) -> None:
    task, _root = small_tree(office.issuer, "waits")
    words = [*PROGRAM, "--json", "--profile", str(office.made.profile), "request", "refund"]
    words += ["--task", task, "--actor", "agent-7", "--payload", "-", "--wait", "5m"]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=HOUSE,
        env=environment({}),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b'{"order": "o-1", "amount": 900}')
    process.stdin.close()
    process.stdin = None
    effect = process.stderr.readline().decode().split(" ")[0]
    assert office.approve(effect, "bob").code == "permitted"
    out, _err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, json.loads(out)["code"]) == (0, "permitted")


@pytest.mark.spec("APP-01", "APP-03", "ADM-04")
def test_two_people_who_answer_at_once_in_two_processes_make_one_permit(
    office: Office, tmp_path: Path
) -> None:
    effect = ask(office, "race")
    statement = office.statement(effect)
    words = [*PROGRAM, "--json", "--profile", str(office.made.profile), "approve", effect, "--signature"]
    processes = []
    for person in ("bob", "carol"):
        (tmp_path / person).write_text(office.signature(person, statement), encoding="ascii")
        processes.append(
            subprocess.Popen(
                [*words, str(tmp_path / person)], stdout=subprocess.PIPE, cwd=HOUSE, env=environment({})
            )
        )
    codes = [json.loads(one.communicate(timeout=PATIENCE_S)[0])["code"] for one in processes]
    assert sorted(codes) == ["nothing_to_change", "permitted"]
    given = office.issuer._house.ledger.read(lambda view: view.approvals(EffectId(effect)))
    assert len(given) == 1
