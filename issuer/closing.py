"""Letting go of an open issuer: within one budget, whatever hangs, and without finding anything out (INV-03).

Rules: INV-03 (one bounded budget, no reconciliation, honest states), ADM-07 (who was cut off is seen to be gone).
In order: sinks refuse whoever waits, so that an admission that was not sent yet says so; what is still open is asked;
the ledger; the lock. What does not come back by then is left to a thread that keeps no process alive: the lock file
then stays, so that the next start makes certain what this process could not, and checks. Nothing is swept, settled or
inspected here. An outcome that nobody recorded stays `admitted` until its deadline, or until this process is gone.
Next: `issuer.flow.overdue`, at whoever touches the ledger next.
"""

import threading
from typing import Final

from issuer.house import House
from ledger.errors import Fault

CLOSE_BUDGET_S: Final = 5.0
"""Seconds for all of it: more than the deadline of a sink, and little to a person or a service manager that waits."""


def let_go(house: House) -> None:
    """Close everything of `house`; return within `CLOSE_BUDGET_S`, or earlier once all is closed."""
    faults: list[BaseException] = []

    def close() -> None:
        try:
            _close(house)
        except BaseException as fault:  # noqa: BLE001 - handed to whoever closes, who alone can tell what it means
            faults.append(fault)

    thread = threading.Thread(target=close, name="issuer-close", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # No further thread can be started, as at the end of the interpreter: then it is done here, as far as it goes.
        close()
    else:
        thread.join(CLOSE_BUDGET_S)
    if faults:
        raise faults[0]


def _close(house: House) -> None:
    house.delivery.close()
    keep_file = house.ledger.is_uncertain or _has_open_claims(house)
    house.ledger.close()
    house.instance.close(keep_file=keep_file)


def _has_open_claims(house: House) -> bool:
    """Say whether an admission of this process is still open; when that cannot be read, act as if one were."""
    try:
        claims = house.ledger.read(lambda view: view.claims_open())
    except Fault:
        return True
    return any(claim.instance == house.instance.name for claim in claims)
