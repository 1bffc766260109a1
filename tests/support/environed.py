"""A process that does one effect in whatever environment it was started in, and says what it saw, as one JSON line.

Run as `python -m tests.support.environed PROFILE`. It imports the issuer only then, so that an environment
that already spoils an import is told like every other trouble. Beside the effect it computes the digest of a
binding in which every id is fixed: that must not depend on where the process runs.
"""

import json
import sys
from types import MappingProxyType

FIXED_EFFECT = "eff_" + "0123456789abcdef" * 2
FIXED_TASK = "tsk_" + "fedcba9876543210" * 2
EXPIRY = "2030-01-01T00:00:00+05:30"
ODD_ORDER = "İıẞΣς-ÇĞ"
"""Letters whose case, order and bytes differ from one locale to another."""


def fixed_binding(profile: str) -> dict[str, object]:
    """Return digest and instant of a binding that names no id of this run, and the owner's wall clock for it."""
    from pathlib import Path  # noqa: PLC0415 - as the module says

    from issuer.clock import local_time, parse_instant  # noqa: PLC0415
    from issuer.flow.binding import Names, binding_body, binding_digest  # noqa: PLC0415
    from issuer.flow.prepare import pin, read_payload  # noqa: PLC0415
    from issuer.wiring import open_house  # noqa: PLC0415
    from ledger.model import EffectId  # noqa: PLC0415

    house = open_house(Path(profile))
    try:
        operation = house.operations["refund"]
        payload = json.dumps({"order": ODD_ORDER, "amount": 123_456}).encode()
        pinned = pin(house, operation, read_payload(operation, payload, MappingProxyType({})))
        names = Names(
            effect_id=EffectId(FIXED_EFFECT),
            task_id=FIXED_TASK,
            subject="u-ana",
            actor="agent-7",
            caller="u-ana",
            revision=house.revision,
            invocation_id=None,
        )
        expires = parse_instant(EXPIRY, "expires")
        body = binding_body(pinned, names, cost={"USD.cent": 123_456}, expires_ms=expires)
        wall = local_time(expires, "Europe/Berlin")
        return {
            "digest": binding_digest(body).hex(),
            "expires_ms": expires,
            "wall": [wall.day, wall.minute_of_day, wall.weekday],
            "revision": house.revision,
            "contract": operation.contract,
            "bundle": house.bundle.digest,
        }
    finally:
        house.instance.close(keep_file=False)
        house.ledger.close()


def effect(profile: str) -> dict[str, object]:
    """Ask for one effect and commit it; return the answers."""
    from issuer.api import Issuer  # noqa: PLC0415

    with Issuer.open(profile) as issuer:
        asked = issuer.request("refund", {"order": ODD_ORDER, "amount": 7}, task="t1", actor="agent-7")
        done = issuer.commit(asked.effect or "")
        return {"asked": asked.code, "effect": asked.effect, "done": done.code, "expires": asked.expires}


def main(profile: str) -> None:
    """Do both and say so."""
    try:
        facts = effect(profile) | {"binding": fixed_binding(profile)}
    except Exception as raised:  # noqa: BLE001 - told as it is
        facts = {
            "raised": type(raised).__name__,
            "reason": getattr(raised, "reason", None),
            "message": str(raised),
        }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
