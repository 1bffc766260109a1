"""Tags over the ledger's head and over rows that give authority (LED-06): `ledger.port.Authenticator`.

A tag is the key id (4 bytes, big endian) and HMAC-SHA256 over the domain and the data. It stays verifiable after a
rotation, since the key that made it is named in it and stays in the ring; one of a revoked key is not (SEC-03). Every
transaction looks at the head first, so there the ring takes in what another process changed.
"""

import hmac
from typing import Final

from issuer.sealing.errors import KeyUnusable
from issuer.sealing.keys import KeyRing, Purpose
from ledger.errors import Broken

_PURPOSES: Final = {"head": Purpose.HEAD_MAC, "row": Purpose.ROW_MAC, "mark": Purpose.MARKS}
_KEY_ID_BYTES: Final = 4
_TAG_BYTES: Final = _KEY_ID_BYTES + 32


class RingAuthenticator:
    """Tags with the active key of a ring, and accepts those of every key the ring still has."""

    def __init__(self, ring: KeyRing) -> None:
        """Tag with the subkeys of `ring`."""
        self._ring = ring
        self._keyed: dict[tuple[str, int], hmac.HMAC] = {}
        self._turn = ring.turn

    def tag(self, domain: str, data: bytes, *, like: bytes | None = None) -> bytes:
        """Return the tag of `data` in `domain` (`head`, `row` or `mark`), with the key that `like` names, if given."""
        named = None if like is None else int.from_bytes(like[:_KEY_ID_BYTES], "big")
        return self._tagged(domain, data, self._ring.active_key_id if named is None else named)

    def is_authentic(self, domain: str, data: bytes, tag: bytes) -> bool:
        """Say whether `tag` was made for this domain and data by a key of the ring; compared in constant time."""
        if type(tag) is not bytes or len(tag) != _TAG_BYTES:
            return False
        if domain == "head":
            self._ring.notice()
        try:
            expected = self._tagged(domain, data, int.from_bytes(tag[:_KEY_ID_BYTES], "big"))
        except KeyUnusable:
            return False
        return hmac.compare_digest(expected, tag)

    def _tagged(self, domain: str, data: bytes, key_id: int) -> bytes:
        if self._turn != self._ring.turn:
            # What was begun with a key that is revoked by now would prove things for ever.
            self._turn = self._ring.turn
            self._keyed = {}
        # A copy of what is keyed and begun already takes half the time, and a check asks for every row.
        mac = (self._keyed.get((domain, key_id)) or self._begun(domain, key_id)).copy()
        mac.update(data)
        return key_id.to_bytes(_KEY_ID_BYTES, "big") + mac.digest()

    def _begun(self, domain: str, key_id: int) -> hmac.HMAC:
        purpose = _PURPOSES.get(domain)
        if purpose is None:
            raise Broken(f"there is no tag domain {domain}")
        begun = hmac.new(self._ring.subkey(purpose, key_id), domain.encode() + b"\x00", "sha256")
        self._keyed[domain, key_id] = begun
        return begun
