"""The strings and numbers of the SSH protocol, read strictly: one spelling for each value, and nothing left over.

The forms are those of RFC 4251, section 5 (byte, uint32, string, mpint). Every read has a bound that its caller gives,
and a value in another spelling than the one a writer must use is broken: a leading zero byte that an mpint does not
need, a base64 text with spare bits or another padding. So whoever compares bytes has compared values.

What it does not do: know what a field means. Next: `ssh_keys` reads public keys, `ssh_signature` reads signatures.
"""

import base64
import binascii
from typing import Final

__all__ = ["WireBroken", "WireReader", "base64_bytes", "string_of"]

_LENGTH_BYTES: Final = 4
_SIGN_BIT: Final = 0x80


class WireBroken(Exception):  # noqa: N818  a flaw of the bytes; the room's two refusals are made from it
    """The bytes are not a strict encoding of what should stand here."""


class WireReader:
    """Reads one field after the other; `end` says that nothing may follow."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        """Begin at the first byte of `data`."""
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes.

        Raises:
            WireBroken: fewer are left.
        """
        end = self._at + count
        if end > len(self._data):
            raise WireBroken
        taken, self._at = self._data[self._at : end], end
        return taken

    def uint32(self) -> int:
        """Return a whole number of 4 bytes, big endian.

        Raises:
            WireBroken: fewer are left.
        """
        return int.from_bytes(self.take(_LENGTH_BYTES), "big")

    def string(self, bytes_max: int) -> bytes:
        """Return a string of 0 to `bytes_max` bytes.

        Raises:
            WireBroken: it is longer, or not all there.
        """
        length = self.uint32()
        if length > bytes_max:
            raise WireBroken
        return self.take(length)

    def positive(self, bits_max: int) -> int:
        """Return an mpint that is 1 or more and has at most `bits_max` bits.

        Raises:
            WireBroken: it is zero, negative, larger, or spelled with more bytes than it needs.
        """
        spelled = self.string(bits_max // 8 + 1)
        if not spelled or spelled[0] & _SIGN_BIT:
            raise WireBroken
        if spelled[0] == 0 and not (len(spelled) > 1 and spelled[1] & _SIGN_BIT):
            raise WireBroken
        value = int.from_bytes(spelled, "big")
        if value.bit_length() > bits_max:
            raise WireBroken
        return value

    def end(self) -> None:
        """Return where nothing follows.

        Raises:
            WireBroken: something does.
        """
        if self._at != len(self._data):
            raise WireBroken


def string_of(data: bytes) -> bytes:
    """Return `data` as an SSH string: its length in 4 bytes, big endian, and itself."""
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def base64_bytes(text: str) -> bytes:
    """Return the bytes of a base64 text (RFC 4648, section 4) in its one spelling: padded, no spare bits, no spaces.

    Raises:
        WireBroken: it is spelled in another way, or is no base64.
    """
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise WireBroken from error
    if base64.b64encode(data).decode("ascii") != text:
        raise WireBroken
    return data
