"""A process that does effects and says each answer at once; its system calls are recorded by `tests.support.powercut`.

Run as `python -m tests.support.recorded_effects PROFILE COUNT HOW`. `HOW` is `shipped`, or names a weakening that
must be seen to lose what was acknowledged: `normal` (synchronous=NORMAL) or `delete` (SQLite's default journal).
"""

import os
import sys

from issuer import Issuer
from ledger.sqlite import connection, store
from tests.support.transitions import ask_note, ask_publish

EFFECTS_PER_OPENING = 4
"""Closing folds the WAL into the file, so a recording holds checkpoints and a WAL that begins anew."""


def weaken(how: str) -> None:
    """Take one guard of durability away in this process."""
    if how == "normal":
        rest = [row for row in connection._PRAGMAS if row[0] != "synchronous"]
        setattr(connection, "_PRAGMAS", (("synchronous", "NORMAL", 1), *rest))  # noqa: B010 - a Final, on purpose
    elif how == "delete":
        store.journal_mode = lambda: "delete"
    elif how != "shipped":
        raise SystemExit(f"no such weakening: {how}")


def say(*words: str) -> None:
    """Tell what was answered, in one write."""
    os.write(1, " ".join(words).encode() + b"\n")


def expect(code: str, wanted: str) -> None:
    """End where an answer is not the one that a sound ledger gives."""
    if code != wanted:
        raise SystemExit(f"{code} instead of {wanted}")


def one(issuer: Issuer, number: int) -> None:
    """Do one effect: every other one is a file, the rest are sent by the host."""
    name = f"n-{number}"
    if number % 2:
        effect = ask_note(issuer, name)
        say("permitted", effect, name)
        expect(issuer.commit(effect).code, "succeeded")
    else:
        effect = ask_publish(issuer, name)
        say("permitted", effect, name)
        admitted = issuer.admit(effect)
        expect(admitted.code, "admitted")
        say("admitted", effect)
        expect(issuer.report(effect, str(admitted.more["claim"]), succeeded=True).code, "succeeded")
    say("succeeded", effect)


def main(profile: str, count: int, how: str) -> None:
    """Do the effects."""
    weaken(how)
    for first in range(0, count, EFFECTS_PER_OPENING):
        with Issuer.open(profile) as issuer:
            for number in range(first, min(first + EFFECTS_PER_OPENING, count)):
                one(issuer, number)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
