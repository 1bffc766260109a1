"""What a profile may say and this release does not do is answered "not supported yet" with its key, never ignored."""

import os
import shutil
from pathlib import Path

import pytest

from issuer.profile import UNSERVED, unserved_reason
from issuer.setup import initialise
from tests.support.issuers import STANDARD_PROFILE, Made, permitted, refund, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service
from tests.support.shell import HOUSE, Ran, issuer_here
from tests.support.ssh import ED25519_TOUCH, touch_key
from tests.support.witness import Seen, assert_nothing_but_a_refusal, witness

EXPERIENCE = Path(os.environ.get("PERMIT_VECTORS", HOUSE.parent / "shared" / "vectors")).parent / "experience"
REFUND = b'{"order": "o-2", "amount": 300}'

PROVES = 'key_kept = "24h" }'
PERSON = 'u-ben = { login = "token" }'
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "mode": ("mode", {'mode = "ordinary"': 'mode = "strict"'}),
    "person.*.login": ("person.u-ben.login", {"[actor]": f"{PERSON}\n[actor]"}),
}
"""Per pattern: the key as it is named, and the texts of the profile that are changed to use it."""


def _request(made: Made, operation: str, document: bytes) -> Ran:
    options = ("--task", "t1", "--actor", "agent-7", "--payload", "-", "--json")
    return issuer_here("request", operation, *options, at=made.folder, stdin=document)


def _assert_unsupported(ran: Ran, keys: set[str]) -> None:
    assert (ran.exit, ran.code) == (7, "unsupported"), ran.out
    assert ran.answer["field"] in keys
    assert ran.answer["say"].startswith(f"Not supported yet: {ran.answer['field']}")
    assert ran.answer["retryable"] is False


def test_every_entry_of_the_table_has_its_case() -> None:
    assert [entry.pattern for entry in UNSERVED] == list(CASES)
    for key, changes in CASES.values():
        assert unserved_reason(key).endswith(".")
        assert all(old in STANDARD_PROFILE for old in changes)


@pytest.mark.parametrize("pattern", list(CASES))
@pytest.mark.spec("OPR-01", "SUR-02")
def test_it_is_refused_by_its_key_and_nothing_is_prepared_or_sent(tmp_path: Path, pattern: str) -> None:
    key, changes = CASES[pattern]
    alone = key.startswith("operation.")
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
        text = made.profile.read_text()
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        made.profile.write_text(text)
        activated(made.profile)
        keys = {key}
        before = witness(made)
        _assert_unsupported(_request(made, "refund", REFUND), keys)
        now = witness(made)
        assert_nothing_but_a_refusal(before, now, code="unsupported")
        _assert_unsupported(issuer_here("commit", effect, "--json", at=made.folder), keys)
        then = witness(made)
        assert_nothing_but_a_refusal(now, then, code="unsupported")
        opened = issuer_here("task", "open", "t9", "--parent", "t1", "--json", at=made.folder)
        other = _request(made, "publish", b'{"name": "v1"}')
        if alone:
            assert (opened.code, other.code) == ("opened", "permitted")
        else:
            _assert_unsupported(opened, keys)
            _assert_unsupported(other, keys)
            assert_nothing_but_a_refusal(then, _without_one_span(made), code="unsupported")
        assert issuer_here("show", effect, "--json", at=made.folder).code == "found"
        assert service.counts()["connections"] == 0


def _without_one_span(made: Made) -> Seen:
    """What is held now, but for the second of two refusals."""
    seen = witness(made)
    assert seen.spans[-1][0] == "refused"
    return Seen(rows=seen.rows, spans=seen.spans[:-1], sink=seen.sink, files=seen.files)


@pytest.mark.spec("OPR-01", "OPR-03")
def test_the_profile_of_the_experience_is_served_but_for_strict_mode_which_is_refused(tmp_path: Path) -> None:
    if not (EXPERIENCE / "profile.toml").exists():
        pytest.skip("the experience's files are not here")
    folder = tmp_path / "acme"
    shutil.copytree(EXPERIENCE, folder)
    text = (folder / "profile.toml").read_text()
    (folder / "people").mkdir()
    for name in ("alice", "bob", "carol"):
        (folder / "people" / f"{name}.pub").write_text(touch_key(ED25519_TOUCH).line)
    assert 'mode     = "strict"' in text
    strict = issuer_here("init", "acme", "--json", at=tmp_path)
    assert (strict.exit, strict.code) == (7, "unsupported")
    assert not (folder / "keys").exists()
    ordinary = text.replace('mode     = "strict"', 'mode     = "ordinary"').replace(
        "uid:1000", f"uid:{os.getuid()}"
    )
    (folder / "profile.toml").write_text(ordinary)
    made = initialise(folder, uid=os.getuid())
    assert made.issuer.startswith("acme/")
    opening = (
        "--subject",
        "bob",
        "--actor",
        "ap-bot",
        "--class",
        "payment=20",
        "--budget",
        "EUR.cent=100000",
    )
    assert issuer_here("task", "open", "q4", *opening, "--json", at=folder).code == "opened"
    for operation in ("pay_invoice", "publish_package", "delete_record"):
        arguments = ("request", operation, "--task", "q4", "--actor", "ap-bot", "--payload", "-", "--json")
        assert issuer_here(*arguments, at=folder, stdin=b"{}").code == "malformed"
    listed = issuer_here("task", "list", "--json", at=folder)
    assert (listed.code, listed.answer["mode"]) == ("found", "ordinary")
    assert [task["name"] for task in listed.answer["tasks"]] == ["q4"]
