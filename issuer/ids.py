"""The only place that asks the machine for randomness. Ids are opaque: 128 random bits each (EFF-01)."""

import secrets
from typing import Final

from ledger.model import EffectId, InvocationId, LedgerId, PermitId, TaskId

ID_BYTES: Final = 16
"""128 bits (EFF-01): not to be guessed, and never repeated."""


def random_bytes(count: int) -> bytes:
    """Return `count` random bytes from the operating system."""
    return secrets.token_bytes(count)


def new_effect_id() -> EffectId:
    """Return a fresh effect id."""
    return EffectId("eff_" + random_bytes(ID_BYTES).hex())


def new_task_id() -> TaskId:
    """Return a fresh task id."""
    return TaskId("tsk_" + random_bytes(ID_BYTES).hex())


def new_permit_id() -> PermitId:
    """Return a fresh permit id."""
    return PermitId("pmt_" + random_bytes(ID_BYTES).hex())


def new_invocation_id() -> InvocationId:
    """Return a fresh invocation id."""
    return InvocationId("inv_" + random_bytes(ID_BYTES).hex())


def new_ledger_id() -> LedgerId:
    """Return a fresh ledger id."""
    return LedgerId("led_" + random_bytes(ID_BYTES).hex())


def new_key_id() -> int:
    """Return a key id: a random 31-bit number, never 0."""
    return int.from_bytes(random_bytes(4), "big") >> 1 | 1


def new_instance() -> str:
    """Return the id of one running process that can dispatch (ADM-07)."""
    return "ins_" + random_bytes(ID_BYTES).hex()


def new_claim() -> str:
    """Return the secret of one admission; only its winner knows it (ADM-07)."""
    return "clm_" + random_bytes(ID_BYTES).hex()


def new_request_key() -> str:
    """Return a request key for a caller that gave none."""
    return "key_" + random_bytes(ID_BYTES).hex()
