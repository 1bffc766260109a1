"""What is not as the owner set it up is told in one sentence with one code, and nothing is changed by telling it."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.answering import code_of_fault
from issuer.errors import SetupError
from issuer.profile import ProfileRefused
from ledger.errors import Fault
from policies import BundleRefused
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.revised import demand_one_revision, spans_of
from tests.support.service import Service
from tests.support.shell import issuer_here

ASK = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-")
PAYLOAD = b'{"order": "o-2", "amount": 300}'
Break = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, str]:
    """An issuer with one permitted effect; each test breaks a copy of its folder."""
    made = standard_issuer(tmp_path_factory.mktemp("whole") / "f0", port=9)
    with made.open() as issuer:
        return made, permitted(refund(issuer))


@pytest.fixture
def copy(whole: tuple[Made, str], tmp_path: Path) -> tuple[Path, str]:
    made, effect = whole
    return Path(shutil.copytree(made.folder, tmp_path / "f0")), effect


def rewrite(old: str, new: str) -> Break:
    """Change one text of the profile."""

    def change(folder: Path) -> None:
        path = folder / "profile.toml"
        text = path.read_text()
        assert text.count(old) >= 1
        path.write_text(text.replace(old, new, 1))

    return change


def ledger_file(content: bytes | None) -> Break:
    """Take the ledger's files away and put `content` in the place of the main one."""

    def change(folder: Path) -> None:
        for path in (folder / "ledger").glob("ledger.sqlite*"):
            path.unlink()
        if content is not None:
            (folder / "ledger" / "ledger.sqlite").write_bytes(content)

    return change


def each_key(mode: int) -> Break:
    """Change the mode of every key file."""

    def change(folder: Path) -> None:
        for path in (folder / "keys").iterdir():
            path.chmod(mode)

    return change


DRAFTS: list[tuple[str, Break, str, int, str]] = [
    ("an unknown key", rewrite("lifetime = ", "lifetme = "), "malformed", 2, 'Did you mean "lifetime"?'),
    ("its place", rewrite("lifetime = ", "lifetme = "), "malformed", 2, "profile.toml:17:1: class.refund.lifetme"),
    ("an impossible bound", rewrite("permits = 100 ", "permits = 300 "), "malformed", 2, "class.refund.per_task"),
    ("a bound of nothing", rewrite("permits = 200 ", "permits = 0 "), "malformed", 2, "profile.toml:16:"),
    ("a float", rewrite('"USD.cent" = 500', '"USD.cent" = 500.0'), "malformed", 2, "whole number"),
    ("a duplicate key", rewrite("format = 1", "format = 1\nformat = 1"), "malformed", 2, "profile.toml:3:"),
    ("a cost without a bound", rewrite("[1, 1_000_000]", "[-5, 1_000_000]"), "malformed", 2, "operation.refund"),
    ("no policies", lambda f: shutil.rmtree(f / "policies"), "malformed", 2, "cannot be read"),
    ("a broken policy", lambda f: (f / "policies" / "b.cedar").write_text("permit ("), "malformed", 2, "b.cedar:1:"),
    ("a policy of the wrong type", lambda f: (f / "policies" / "b.cedar").write_text(
        '@id("b") permit (principal, action == Action::"issue", resource is Order)'
        ' when { context.cost["USD.cent"] <= "500" };'), "malformed", 2, "b.cedar:1:"),
]  # fmt: skip
"""What is wrong with the files of the owner: nobody can activate them, and what is in force goes on."""

BROKEN: list[tuple[str, Break, str, int, str]] = [
    ("no profile", lambda f: (f / "profile.toml").unlink(), "malformed", 2, "run `issuer init FOLDER`"),
    ("no key folder", lambda f: shutil.rmtree(f / "keys"), "keys_unavailable", 8, "missing"),
    ("a key that others can read", each_key(0o640), "keys_unavailable", 8, "open to others"),
    ("a key that the world can read", each_key(0o604), "keys_unavailable", 8, "open to others"),
    ("a key folder that others can read", lambda f: (f / "keys").chmod(0o755), "keys_unavailable", 8, "open to others"),
    ("no ledger folder", lambda f: shutil.rmtree(f / "ledger"), "ledger_unavailable", 8, ""),
    ("no ledger", ledger_file(None), "ledger_unavailable", 8, "The ledger is gone"),
    ("no database", ledger_file(b"text" * 2048), "ledger_unavailable", 8, ""),
    ("an empty database", ledger_file(b""), "ledger_unavailable", 8, ""),
]  # fmt: skip


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of every file but SQLite's shared memory and the locks of processes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(("-shm", "-wal", ".lock"))
    }


@pytest.mark.parametrize(
    ("what", "change", "code", "exit_code", "words"), BROKEN, ids=[row[0] for row in BROKEN]
)
@pytest.mark.spec("LED-04", "POL-04", "SEC-03", "SUR-01", "SUR-02")
def test_a_broken_setup_is_told_and_left_alone(
    *,
    whole: tuple[Made, str],
    copy: tuple[Path, str],
    what: str,
    change: Break,
    code: str,
    exit_code: int,
    words: str,
) -> None:
    folder, effect = copy
    sink = whole[0].sink
    change(folder)
    before, anchored = everything_in(folder), sink.read_bytes()
    for command, stdin in ((("list",), b""), (ASK, PAYLOAD), (("commit", effect), b"")):
        ran = issuer_here("--json", *command, at=folder, stdin=stdin)
        assert (ran.exit, ran.code, ran.err) == (exit_code, code, ""), (what, command)
        _demand_sentence(ran.answer["say"], words)
    if code != "malformed" or (folder / "profile.toml").exists():
        assert _code_by_api(folder) == code
    assert everything_in(folder) == before
    assert sink.read_bytes() == anchored


def _demand_sentence(say: str, words: str) -> None:
    assert words in say
    first, *findings = say.splitlines()
    assert first.endswith(".")
    assert all(re.match(r"\S+:\d+:\d+: ", finding) for finding in findings), findings


@pytest.mark.parametrize(
    ("change", "code", "exit_code", "words"), [row[1:] for row in DRAFTS], ids=[row[0] for row in DRAFTS]
)
@pytest.mark.spec("POL-04", "POL-07", "SUR-01", "SUR-02")
def test_a_broken_draft_is_told_where_it_is_activated_and_what_is_in_force_goes_on(
    copy: tuple[Path, str], change: Break, code: str, exit_code: int, words: str
) -> None:
    folder, effect = copy
    change(folder)
    ran = issuer_here("--json", "activate", at=folder)
    assert (ran.exit, ran.code, ran.err) == (exit_code, code, "")
    _demand_sentence(ran.answer["say"], words)
    assert _code_by_api(folder) == "opened"
    with Issuer.open(folder / "profile.toml") as issuer:
        assert issuer.request_held(effect).code == "permitted"
        story = issuer._house.ledger.read(lambda view: view.story(issuer._house.ledger.ledger_id))
        assert [span.name for span in story][-1] == "refused"
        assert len(demand_one_revision(spans_of(issuer))) == 1


def _code_by_api(folder: Path) -> str:
    """Open by the Python API, which must raise, and return the code of what it raised."""
    try:
        Issuer.open(folder / "profile.toml").close()
    except (ProfileRefused, BundleRefused):
        return "malformed"
    except SetupError as fault:
        return "unsupported" if fault.reason == "strict" else "malformed"
    except Fault as fault:
        return code_of_fault(fault)
    return "opened"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
@pytest.mark.spec("SEC-01", "SEC-03", "REP-04")
def test_a_credential_that_others_can_read_is_not_used_and_nothing_is_sent(tmp_path: Path, mode: int) -> None:
    with Service() as service:
        made = standard_issuer(
            tmp_path / "f0", port=service.port, changes={'once = "Idempotency-Key" }': HTTP_WITH_CREDENTIAL}
        )
        path = made.folder / "credentials" / "shop_key"
        path.write_text("sk-CANARY-4711\n")
        path.chmod(mode)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
        ran = issuer_here("--json", "commit", effect, at=made.folder)
        assert ran.exit in {7, 8}
        assert ran.code in {"not_dispatched", "cannot_prepare"}
        assert "CANARY" not in ran.out + ran.err
        assert service.counts()["connections"] == 0
        with made.open() as issuer:
            line = issuer.task_show("t1").more["task"]
    assert isinstance(line, dict)
    assert line["budget"]["USD.cent"]["reserved"] == 0


HTTP_WITH_CREDENTIAL = 'once = "Idempotency-Key", bearer = "shop_key" }'
