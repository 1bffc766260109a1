"""A process that does effects one after the other and writes a mark before, between and after them.

Run as `python -m tests.support.counted_effects PROFILE MARKS COUNT`: the first effect warms the process up, and
each of the COUNT others stands between two marks. A tracer of system calls sees the marks beside everything else.
"""

import os
import sys

from issuer.api import Issuer

MARK = b"mark\n"


def main(profile: str, marks: str, count: int) -> None:
    """Do the effects; an answer that is not a success ends the process with a fault."""
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with Issuer.open(profile) as issuer:
        for number in range(count + 1):
            payload = {"order": f"o-{number}", "amount": 7}
            asked = issuer.request("refund", payload, task="t1", actor="agent-7")
            done = issuer.commit(asked.effect or "")
            if done.code != "succeeded":
                raise SystemExit(f"{asked.code} and then {done.code}")
            os.write(descriptor, MARK)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
