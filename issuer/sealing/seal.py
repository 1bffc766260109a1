"""The sealed permit: what a permit says, kept so that only the core can mint, read or move it (PER-02).

Rules:
1. A seal is bound to one ledger id, one effect id and one binding digest. It opens nowhere else.
2. A token has one spelling: base64url without padding, decoded strictly and encoded again to compare.
   Python's own decoder drops foreign characters and ignores unused bits, which would give one permit many
   spellings.
3. Size is judged before any work is done on what a stranger handed in.
4. Every failure is the same `SealBroken`, raised in one place, with no cause attached.
5. Claims are read with exact types and the exact set of keys, and must be the canonical bytes of themselves.

What it does not do: **judge expiry**. A seal that opens is authentic, not alive. Time belongs to
`ledger.rules`, which reads it after the lock is held (PER-03). It does not make a permit one-use either: the
ledger's row does (ADM-02). Next: `issuer.flow` stores the token in the transaction that issues the permit.
"""

import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecoder
from types import MappingProxyType
from typing import Final, NamedTuple

from issuer.sealing.envelope import NONCE_BYTES, OVERHEAD_BYTES, close_envelope, key_id_of, open_envelope
from issuer.sealing.errors import SealBroken
from issuer.sealing.keys import KeyRing, Purpose
from ledger.canonical import WHOLE_MAX
from ledger.errors import Broken
from ledger.model import AMOUNT_MAX, UNIT_PATTERN

__all__ = [
    "CLAIMS_BYTES_MAX",
    "NONCE_BYTES",
    "TOKEN_CHARS_MAX",
    "PermitClaims",
    "open_permit",
    "permit_says",
    "seal_key_id",
    "seal_permit",
]

TOKEN_CHARS_MAX: Final = 2048
"""Ten times a usual token, and little enough to look at whole before any decoding."""

CLAIMS_BYTES_MAX: Final = TOKEN_CHARS_MAX * 3 // 4 - OVERHEAD_BYTES
"""What is left for the claims once base64 and the envelope have taken their share."""

COSTS_ALWAYS_FIT: Final = 6
"""So many units of the longest names and amounts fit beside the longest ids, so nobody has to encode them to see it."""

_DIGEST_BYTES: Final = 32
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_MAGIC: Final = b"PS"
_VERSION: Final = 1
_FIRST: Final = b'{"bundle_digest":"'
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@+-]{1,64}")
_BUNDLE: Final = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_DECODER: Final = JSONDecoder()
_TIERS: Final = frozenset({"issue", "approval"})
_KEYS: Final = frozenset(
    {"v", "permit_id", "effect_id", "task_id", "issued_ms", "expires_ms", "tier", "bundle_digest", "costs"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitClaims:
    """What a permit says. It cannot exist with a wrong type, an empty lifetime or an unbounded text.

    Ids are 1 to 64 characters of `A-Za-z0-9_.:/@+-`, `bundle_digest` up to 128 of them. Times are whole
    milliseconds of UTC since 1970, issued before expired. `tier` is `issue` or `approval`. `costs` are whole
    numbers from 0 to 2^53-1 per unit (EFF-04); the mapping is copied and read-only. Encoded, the claims take
    at most `CLAIMS_BYTES_MAX` bytes: some fifty units of usual names.

    Raises:
        Broken: any of that does not hold; the text names the claim and shows no value.
    """

    permit_id: str
    effect_id: str
    task_id: str
    issued_ms: int
    expires_ms: int
    tier: str
    bundle_digest: str
    costs: Mapping[str, int]

    def __post_init__(self) -> None:
        """Refuse a bad state and keep a private copy of the costs."""
        costs = dict(self.costs)
        object.__setattr__(self, "costs", MappingProxyType(costs))
        flaw = _said(self).flaw()
        if flaw is not None:
            raise Broken(f"The claim '{flaw}' has a wrong type or is out of range.")


def seal_permit(
    ring: KeyRing,
    claims: PermitClaims,
    *,
    ledger_id: str,
    effect_id: str,
    binding_digest: bytes,
    nonce: bytes,
) -> str:
    """Return the token for `claims`, under the active key, bound to ledger, effect and binding.

    `binding_digest` is 32 bytes (SHA-256); `nonce` is 12 random bytes drawn by the caller, fresh for each
    permit.

    Raises:
        Broken: an id outside its alphabet, a digest or nonce of another type or size, or claims for another
            effect.
    """
    bound = _bound(ledger_id, effect_id, binding_digest)
    if bound is None:
        raise Broken("A permit is bound to a plain ledger id, a plain effect id and a digest of 32 bytes.")
    if claims.effect_id != effect_id:
        raise Broken("The claims name another effect than the one that is sealed.")
    plaintext = _said(claims).encoded()
    sealed = close_envelope(ring, Purpose.SEAL, magic=_MAGIC, plaintext=plaintext, nonce=nonce, bound=bound)
    return _spell(sealed)


def open_permit(
    ring: KeyRing, token: str, *, ledger_id: str, effect_id: str, binding_digest: bytes
) -> PermitClaims:
    """Return what the permit says, where the seal is whole and was made for exactly this place.

    Expiry is not judged here (see the module); neither is whether the permit was consumed or revoked.

    Raises:
        SealBroken: anything at all is wrong with the token, its key, its place or its claims.
    """
    claims = _open(ring, token, _bound(ledger_id, effect_id, binding_digest))
    # Raised outside any `except` block, so that no inner error (and no plaintext in its frames) hangs on to
    # it.
    if claims is None or claims.effect_id != effect_id:
        raise SealBroken
    return claims


def permit_says(
    ring: KeyRing,
    token: str,
    *,
    ledger_id: str,
    effect_id: str,
    binding_digest: bytes,
    permit_id: str,
    task_id: str,
    issued_ms: int,
    expires_ms: int,
    tier: str,
    costs: Mapping[str, int],
) -> bool:
    """Say whether the permit opens for this place and says exactly this, whatever bundle it was issued under.

    It is what comparing the claims of `open_permit` says, in half the time: a check asks it of every permit.
    """
    plaintext = _plaintext(ring, token, _bound(ledger_id, effect_id, binding_digest))
    if plaintext is None:
        return False
    bundle_digest = plaintext.removeprefix(_FIRST).partition(b'"')[0].decode("ascii", "replace")
    said = _Said(permit_id, effect_id, task_id, issued_ms, expires_ms, tier, bundle_digest, costs)
    return said.flaw() is None and hmac.compare_digest(said.encoded(), plaintext)


def seal_key_id(token: str) -> int | None:
    """Return the id of the key that a permit's seal names, unproven; None where it is no seal."""
    sealed = _unspell(token)
    return None if sealed is None else key_id_of(sealed)


def _open(ring: KeyRing, token: str, bound: tuple[bytes, bytes, bytes] | None) -> PermitClaims | None:
    plaintext = _plaintext(ring, token, bound)
    return None if plaintext is None else _decode(plaintext)


def _plaintext(ring: KeyRing, token: str, bound: tuple[bytes, bytes, bytes] | None) -> bytes | None:
    sealed = None if bound is None else _unspell(token)
    if bound is None or sealed is None:
        return None
    return open_envelope(ring, Purpose.SEAL, magic=_MAGIC, sealed=sealed, bound=bound)


def _spell(sealed: bytes) -> str:
    return binascii.b2a_base64(sealed, newline=False).rstrip(b"=").translate(_TO_URL).decode("ascii")


def _unspell(token: str) -> bytes | None:
    if type(token) is not str or len(token) > TOKEN_CHARS_MAX or _TOKEN.fullmatch(token) is None:
        return None
    try:
        sealed = binascii.a2b_base64(token.encode("ascii").translate(_FROM_URL) + b"=" * (-len(token) % 4))
    except binascii.Error:
        return None
    return sealed if hmac.compare_digest(_spell(sealed), token) else None


def _bound(ledger_id: str, effect_id: str, binding_digest: bytes) -> tuple[bytes, bytes, bytes] | None:
    if type(binding_digest) is not bytes or len(binding_digest) != _DIGEST_BYTES:
        return None
    if not _is_name(ledger_id) or not _is_name(effect_id):
        return None
    return ledger_id.encode("ascii"), effect_id.encode("ascii"), binding_digest


class _Said(NamedTuple):
    """The claims one by one, before or after they are a value: what is judged, and what is encoded."""

    permit_id: str
    effect_id: str
    task_id: str
    issued_ms: int
    expires_ms: int
    tier: str
    bundle_digest: str
    costs: Mapping[str, int]

    def flaw(self) -> str | None:
        """Return the name of a claim that has a wrong type or is out of range, or None."""
        for name in ("permit_id", "effect_id", "task_id"):
            if not _is_name(getattr(self, name)):
                return name
        if type(self.bundle_digest) is not str or _BUNDLE.fullmatch(self.bundle_digest) is None:
            return "bundle_digest"
        if type(self.tier) is not str or self.tier not in _TIERS:
            return "tier"
        if not _is_whole(self.issued_ms):
            return "issued_ms"
        if not _is_whole(self.expires_ms) or self.expires_ms <= self.issued_ms:
            return "expires_ms"
        fits = all(map(_is_cost, self.costs.items()))
        if fits and len(self.costs) > COSTS_ALWAYS_FIT:
            fits = len(self.encoded()) <= CLAIMS_BYTES_MAX
        return None if fits else "costs"

    def encoded(self) -> bytes:
        """Return the canonical bytes of claims without a flaw, written out: no text in them needs an escape."""
        costs = ",".join([f'"{unit}":{amount}' for unit, amount in sorted(self.costs.items())])
        return (
            f'{{"bundle_digest":"{self.bundle_digest}","costs":{{{costs}}},"effect_id":"{self.effect_id}",'
            f'"expires_ms":{self.expires_ms},"issued_ms":{self.issued_ms},"permit_id":"{self.permit_id}",'
            f'"task_id":"{self.task_id}","tier":"{self.tier}","v":{_VERSION}}}'
        ).encode()


def _said(claims: PermitClaims) -> _Said:
    return _Said(
        *(claims.permit_id, claims.effect_id, claims.task_id, claims.issued_ms, claims.expires_ms),
        *(claims.tier, claims.bundle_digest, claims.costs),
    )


def _is_cost(cost: tuple[object, object]) -> bool:
    unit, amount = cost
    return (
        type(unit) is str
        and UNIT_PATTERN.fullmatch(unit) is not None
        and type(amount) is int
        and 0 <= amount <= AMOUNT_MAX
    )


def _decode(plaintext: bytes) -> PermitClaims | None:
    if len(plaintext) > CLAIMS_BYTES_MAX:
        return None
    # Any reader will do: claims come in one spelling, and what is not the encoding of what was read fails below.
    try:
        body = _DECODER.decode(plaintext.decode())
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or body.keys() != _KEYS or type(body["costs"]) is not dict:
        return None
    if body.pop("v") != _VERSION:
        # `True` passes here as 1, and fails below where the bytes are compared.
        return None
    try:
        claims = PermitClaims(**body)
    except Broken:
        return None
    return claims if hmac.compare_digest(_said(claims).encoded(), plaintext) else None


def _is_name(value: object) -> bool:
    return type(value) is str and _NAME.fullmatch(value) is not None


def _is_whole(value: object) -> bool:
    # `type(...) is int` and not isinstance: True is an int to isinstance, and would pass for 1.
    return type(value) is int and 0 <= value <= WHOLE_MAX
