"""How long something may live that begins now: a permit, a wait for people, and what outside may still refer to it.

Rules: PER-03 (the earliest of all caps, each by its name in the record), PER-04. Pure; the instant is the lock's.
Next: `issuer.flow.prepare` binds an expiry, `issuer.flow.issue` and `issuer.flow.approve` seal one.
"""

from issuer.house import Locked
from issuer.operations.registry import Operation
from ledger.model import InstantMs


def lifetime_caps(operation: Operation, locked: Locked) -> dict[str, int]:
    """Return every cap on a lifetime that begins now, by name, as instants (PER-03)."""
    now = locked.now
    caps = {"class": now + operation.bounds.lifetime_ms}
    if operation.lifetime_ms is not None:
        caps["operation"] = now + operation.lifetime_ms
    if operation.key_kept_ms is not None:
        caps["service_idempotency"] = now + operation.key_kept_ms
    return caps | _around(locked)


def waiting_caps(operation: Operation, locked: Locked) -> dict[str, int]:
    """Return every cap on a wait for people that begins now, by name, as instants.

    Its permit gets caps of its own when they have answered (`lifetime_caps`), and none beyond these.
    """
    return {"wait": locked.now + operation.bounds.wait_ms} | _around(locked)


def _around(locked: Locked) -> dict[str, int]:
    """Return the ends of what an effect belongs to."""
    caps = {"task": int(min(node.task.expires_ms for node in locked.path))}
    if locked.invocation is not None:
        caps["invocation"] = locked.invocation.deadline_ms
    return caps


def window_end(operation: Operation, expires: InstantMs) -> InstantMs:
    """Return from when on nothing outside can still refer to an effect that `expires` then (PER-04).

    It may be admitted until then, sent until its deadline after that, and the service keeps its key from there on.
    """
    return InstantMs(expires + operation.deadline_ms + (operation.key_kept_ms or 0))
