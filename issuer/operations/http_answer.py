"""HTTP answer: reads one response and says whether it arrived whole.

Decides what was received, not what it proves. Rules: strict framing of RFC 9112; every size has a bound; the
whole answer has one deadline, however slowly the bytes drip; interim responses (1xx) are passed over as RFC
9110, section 15.2, says, up to a bound, and never count. A final status line whose header section or body is
malformed, cut short or over its bound is `is_whole=False`: it was said, but not to its end.

An own reader rather than `http.client`, because that takes the end of the connection for the end of a header
section, takes 103 for a final answer, and reads a broken Content-Length as none: each would let half an
answer pass as a whole one. A body is counted and thrown away unless the caller says how much of it may be
kept. Next: `issuer.operations.http_adapter` sends, `issuer.operations.http_read` reads.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

HEADER_BYTES_MAX: Final = 32 * 1024
"""Bytes of all status lines and header sections of one answer: twice what common servers send."""

INTERIM_MAX: Final = 8
"""Interim responses before the final one: a server has no reason for more than a few."""

CHUNK_LINE_BYTES_MAX: Final = 256
"""Bytes of a chunk's size line; extensions are rare and mean nothing to us."""

_SWITCHING: Final = 101
_FINAL_FROM: Final = 200
_WITHOUT_BODY: Final = frozenset({204, 205, 304})

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_FIELD_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_DIGITS: Final = re.compile(rb"[0-9]{1,15}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")

Receive = Callable[[int], bytes]
"""Wait for at most so many bytes until the deadline; empty at the end; raises `OSError` (timeouts too)."""


class AnswerUnreadableError(Exception):
    """What came back is no HTTP, or ended before the final status line. Holds no content."""


class Flaw(StrEnum):
    """Why what belongs to a final status did not arrive whole."""

    CUT = "cut"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"


class _CutError(Exception):
    """The answer is malformed, over a bound or over early; the status line before it stands."""


class _TooLargeError(_CutError):
    """The body is over its bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAnswer:
    """A final status (200..599, or 101) and what arrived of all that belongs to it.

    Attributes:
        flaw: why it is not whole, or None.
        fields: the header section, names in lower case; empty where that did not arrive whole.
        body: None where it is over the bound of what is kept, or did not arrive whole.
    """

    status: int
    flaw: Flaw | None = None
    fields: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether all that belongs to the status arrived."""
        return self.flaw is None

    def header(self, name: bytes) -> tuple[bytes, ...]:
        """Return every value of a field, named in lower case."""
        return tuple(value for given, value in self.fields if given == name)


def read_answer(receive: Receive, *, body_bytes_max: int, kept_bytes_max: int = 0) -> ReceivedAnswer:
    """Read one answer.

    Args:
        receive: reads from the connection under the exchange's deadline.
        body_bytes_max: bytes of body that are read at most; the body is counted.
        kept_bytes_max: bytes of body that are kept at most; a longer one is kept not at all.

    Raises:
        AnswerUnreadableError: no final status line came.
        OSError: the connection broke, or the deadline passed, before a final status line.
    """
    reader = _Reader(receive, kept_bytes_max)
    for _ in range(INTERIM_MAX + 1):
        try:
            line = reader.line(HEADER_BYTES_MAX)
        except _CutError:
            raise AnswerUnreadableError from None
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            raise AnswerUnreadableError
        status = int(match[1])
        if status == _SWITCHING:
            # We never ask for it, and what follows would be another protocol.
            return ReceivedAnswer(status=status, flaw=Flaw.CUT)
        if status >= _FINAL_FROM:
            return _rest(reader, status, body_bytes_max)
        try:
            reader.fields()
        except _CutError:
            raise AnswerUnreadableError from None
    raise AnswerUnreadableError


def _rest(reader: "_Reader", status: int, body_bytes_max: int) -> ReceivedAnswer:
    """Read header section and body, and say what is wrong with them, if anything."""
    try:
        fields = reader.fields()
        if status not in _WITHOUT_BODY:
            _read_body(reader, fields, body_bytes_max)
    except _TooLargeError:
        return ReceivedAnswer(status=status, flaw=Flaw.TOO_LARGE)
    except TimeoutError:
        return ReceivedAnswer(status=status, flaw=Flaw.TIMEOUT)
    except (_CutError, OSError):
        return ReceivedAnswer(status=status, flaw=Flaw.CUT)
    return ReceivedAnswer(status=status, fields=tuple(fields), body=reader.kept())


def _read_body(reader: "_Reader", fields: list[tuple[bytes, bytes]], bytes_max: int) -> None:
    """Count the body by its framing (RFC 9112, section 6.3); raises `_CutError` where that is unclear."""
    encodings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    lengths = {value for name, value in fields if name == b"content-length"}
    if encodings:
        # Both together, or a coding that is not ours, is how answers are smuggled and split.
        if lengths or encodings != [b"chunked"]:
            raise _CutError
        _read_chunks(reader, bytes_max)
    elif lengths:
        length = lengths.pop()
        if lengths or _DIGITS.fullmatch(length) is None:
            raise _CutError
        if int(length) > bytes_max:
            raise _TooLargeError
        reader.skip(int(length))
    else:
        reader.skip_to_end(bytes_max)


def _read_chunks(reader: "_Reader", bytes_max: int) -> None:
    """Count a chunked body up to and with its trailer section (RFC 9112, section 7.1)."""
    left = bytes_max
    while True:
        match = _CHUNK_SIZE.fullmatch(reader.line(CHUNK_LINE_BYTES_MAX))
        if match is None:
            raise _CutError
        size = int(match[1], 16)
        if size == 0:
            reader.fields()
            return
        # The line itself counts as well, so that very many small chunks end too.
        left -= size + len(match[0])
        if left < 0:
            raise _TooLargeError
        reader.skip(size)
        if reader.line(2):
            raise _CutError


class _Reader:
    """Bytes of one connection, with one budget for all status lines and header sections."""

    __slots__ = ("_at_end", "_buffer", "_header_bytes_left", "_kept", "_kept_bytes_left", "_receive")

    _RECEIVE_BYTES: Final = 16 * 1024

    def __init__(self, receive: Receive, kept_bytes_max: int) -> None:
        self._receive = receive
        self._kept = bytearray()
        self._kept_bytes_left = kept_bytes_max
        self._buffer = bytearray()
        self._at_end = False
        self._header_bytes_left = HEADER_BYTES_MAX

    def _more(self) -> None:
        """Wait for bytes; raises `_CutError` at the end of the connection."""
        data = b"" if self._at_end else self._receive(self._RECEIVE_BYTES)
        if not data:
            self._at_end = True
            raise _CutError
        self._buffer += data

    def line(self, bytes_max: int) -> bytes:
        """Return one line without its CRLF; a bare LF ends none (RFC 9112, section 2.2)."""
        searched = 0
        while (end := self._buffer.find(b"\r\n", max(searched - 1, 0))) < 0:
            searched = len(self._buffer)
            if searched > bytes_max:
                raise _CutError
            self._more()
        if end > bytes_max:
            raise _CutError
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def fields(self) -> list[tuple[bytes, bytes]]:
        """Return the fields up to the empty line, names in lower case; a folded line is malformed."""
        fields: list[tuple[bytes, bytes]] = []
        while line := self.line(self._header_bytes_left):
            self._header_bytes_left -= len(line) + 2
            match = _FIELD_LINE.fullmatch(line)
            if match is None or self._header_bytes_left < 0:
                raise _CutError
            fields.append((match[1].lower(), match[2]))
        return fields

    def kept(self) -> bytes | None:
        """Return the whole body, or None where it is over the bound of what is kept."""
        return None if self._kept_bytes_left < 0 else bytes(self._kept)

    def _keep(self, data: bytes | bytearray) -> None:
        """Keep a part of the body, or nothing of it any more once that would be over the bound."""
        self._kept_bytes_left -= len(data)
        if self._kept_bytes_left < 0:
            self._kept.clear()
        else:
            self._kept += data

    def skip(self, count: int) -> None:
        """Take exactly so many bytes of the body."""
        while len(self._buffer) < count:
            count -= len(self._buffer)
            self._keep(self._buffer)
            self._buffer.clear()
            self._more()
        self._keep(self._buffer[:count])
        del self._buffer[:count]

    def skip_to_end(self, bytes_max: int) -> None:
        """Take everything up to the end of the connection, at most `bytes_max` bytes of body."""
        left = bytes_max - len(self._buffer)
        self._keep(self._buffer)
        self._buffer.clear()
        while left >= 0:
            data = self._receive(self._RECEIVE_BYTES)
            if not data:
                return
            self._keep(data)
            left -= len(data)
        raise _TooLargeError
