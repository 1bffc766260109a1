"""Python adapter: a third party's code prepares and sends; this holds it to what the owner declared.

Decides what of such code's words is believed. Rules: OPR-01 (an undeclared answer proves nothing), OPR-02 (files that
changed void permits), OPR-05 (what it says about itself grants nothing), EFF-06, REP-04, REP-05, SEC-01.

1. Preparing: what it refuses or raises is a no in our words; what it pins is copied, so that it cannot change later.
2. Dispatching: a proof that was not declared is `nothing`, a charge that was not declared is not measured.
3. `NotDispatchedError` says that nothing was sent. An adapter that raises it after its first byte lies, and nothing
   here can see it: that is why an owner admits adapters by digest. Any other exception passes, and is unknown.
4. No sentence of its exceptions and no free word of its answers is kept.

It runs in this process, as trusted code, and has to end by the time it is given. Next: `issuer.flow` settles.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from issuer.operations.admitted_code import Code, CodeRefusedError
from issuer.operations.contract import (
    Answer,
    Inspection,
    Look,
    NotDispatchedError,
    Order,
    Preparation,
    PreparationRefusedError,
    Proof,
    Request,
    Seen,
    TargetUnreadableError,
)
from issuer.operations.declaration import (
    NO_ABILITIES,
    Abilities,
    RegistrationCode,
    RegistrationRefusedError,
)
from issuer.operations.implementation import implementation_digest
from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import Malformed

__all__ = ["AnswerMalformedError", "PythonAdapter", "PythonInspector", "PythonSettings", "UnloadedAdapter"]

_SOURCES: Final = (
    *("python_adapter.py", "admitted_code.py", "declaration.py", "contract.py", "implementation.py"),
)
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_REFERENCE: Final = re.compile(r"[ -~]{0,256}")
_SOURCE_MAX: Final = 64
"""Characters of a source word: as long as evidence holds."""

_NO_CODE: Final = "0" * 64
"""Stands where no code was looked at; SHA-256 of no known text."""


class AnswerMalformedError(Exception):
    """The adapter returned something that is no answer after it was called to send: the outcome is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSettings:
    """What the owner declared of one operation's adapter.

    Attributes:
        operation: the operation's name, for sentences.
        adapter: the adapter's name; `admitted` the digest that the owner wrote.
        settings: what it is made with; never a credential.
        proofs: what its answers may prove; `charges` whether they may prove a charge.
    """

    operation: str
    adapter: str
    admitted: str
    settings: Mapping[str, str]
    proofs: frozenset[Proof]
    charges: bool

    @property
    def source(self) -> str:
        """The stable word for who said so."""
        return f"python:{self.adapter}"[:_SOURCE_MAX]


class PythonAdapter:
    """Implements `contract.Adapter` around an object of a third party."""

    kind: Final = "python"

    def __init__(self, settings: PythonSettings, inner: object, code: Code) -> None:
        """Take what the owner declared, what the factory made, and the files it came from.

        Raises:
            RegistrationRefusedError: `adapter_malformed`, it lacks a method.
        """
        methods = ("prepare", "still_holds", "dispatch")
        if not all(callable(getattr(inner, name, None)) for name in methods):
            raise RegistrationRefusedError(RegistrationCode.ADAPTER_MALFORMED, settings.operation)
        self._settings = settings
        self._inner: _Inner = inner  # type: ignore[assignment]  # its methods were looked for just above
        self._code = code
        self._known = (settings.admitted, _implementation(settings, settings.admitted))

    @property
    def implementation(self) -> str:
        """Digest (hex) of the adapter's files as they are now, our own, and its settings (OPR-02)."""
        now, known = _digest(self._code), self._known
        return known[1] if known[0] == now else _implementation(self._settings, now)

    @property
    def abilities(self) -> Abilities:
        """What the adapter says that it is able to do; it narrows what may be declared and grants nothing (OPR-05)."""
        said = getattr(self._inner, "abilities", None)
        return said if type(said) is Abilities else NO_ABILITIES

    def prepare(self, request: Request) -> Preparation:
        """Let the adapter look at the target.

        Raises:
            PreparationRefusedError: `adapter_changed`, `adapter_failed`, the adapter's own word, or
                `preparation_` and why what it pinned has no canonical form.
        """
        if _digest(self._code) != self._settings.admitted:
            raise _cannot_prepare("adapter_changed")
        found: object = None
        try:
            found = self._inner.prepare(_copied(request))
        except PreparationRefusedError as fault:
            no = _cannot_prepare(_word(fault.code, "adapter_refused"), _field(fault.field, request))
        except Exception:  # noqa: BLE001 - whatever the adapter raises, nothing was sent and nothing is stored
            no = _cannot_prepare("adapter_failed")
        else:
            no = _cannot_prepare("adapter_failed")
            if type(found) is Preparation:
                return _pinned(found)
        raise no from None

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return None where the adapter says that everything still holds, else one word (EFF-07).

        Raises:
            TargetUnreadableError: the adapter raised something.
        """
        word: object = None
        try:
            word = self._inner.still_holds(_copied(request), _pinned(preparation))
        except Exception:  # noqa: BLE001 - whatever the adapter raises, the target was not seen
            failed = True
        else:
            failed = False
        if failed:
            raise TargetUnreadableError("adapter_failed")
        return None if word is None else _word(word, "target_changed")

    def dispatch(self, order: Order) -> Answer:
        """Let the adapter send once, and believe of its answer what was declared.

        Raises:
            NotDispatchedError: the adapter says that nothing was sent, or its files are not the admitted ones.
            AnswerMalformedError: what it returned is no answer; unknown, as with any other exception.
        """
        if _digest(self._code) != self._settings.admitted:
            raise NotDispatchedError("adapter_changed")
        try:
            answer: object = self._inner.dispatch(
                replace(order, request=_copied(order.request), preparation=_pinned(order.preparation))
            )
        except NotDispatchedError as proof:
            reason = _word(proof.reason, "adapter_did_not_send")
        else:
            return _believed(answer, self._settings)
        raise NotDispatchedError(reason)


class PythonInspector:
    """Implements `contract.Inspector` around the same object."""

    def __init__(self, settings: PythonSettings, inner: object, code: Code) -> None:
        """Take what the owner declared, the object, and the files it came from.

        Raises:
            RegistrationRefusedError: `inspection_not_implemented`, it has no method `inspect`.
        """
        self._code = code
        if not callable(getattr(inner, "inspect", None)):
            raise RegistrationRefusedError(RegistrationCode.INSPECTION_NOT_IMPLEMENTED, settings.operation)
        self._settings = settings
        self._inner: _Inner = inner  # type: ignore[assignment]  # its method was looked for just above

    def inspect(self, look: Look) -> Inspection:
        """Let the adapter look once (REC-02).

        Whatever it raises or returns that is no inspection is `unclear`, and so is everything once its files are not
        the admitted ones any more.
        """
        found: object = None
        if _digest(self._code) != self._settings.admitted:
            return Inspection(seen=Seen.UNCLEAR, source=self._settings.source)
        try:
            found = self._inner.inspect(
                replace(look, request=_copied(look.request), preparation=_pinned(look.preparation))
            )
        except Exception:  # noqa: BLE001 - REC-02: an error never proves anything
            found = None
        if type(found) is not Inspection or type(found.seen) is not Seen:
            return Inspection(seen=Seen.UNCLEAR, source=self._settings.source)
        return Inspection(
            seen=found.seen,
            source=self._settings.source,
            reference=_reference(found.reference),
            charged=found.charged if self._settings.charges else None,
        )


class UnloadedAdapter:
    """Stands for an adapter where an issuer is only read: its code is neither looked at nor run."""

    kind: Final = "python"
    implementation: Final = _NO_CODE

    def __init__(self, abilities: Abilities) -> None:
        """Take what is declared; whether the adapter is able to do it is seen when it is loaded."""
        self.abilities = abilities

    def prepare(self, request: Request) -> Preparation:
        """Refuse.

        Raises:
            PreparationRefusedError: always, `reading_only`.
        """
        del request
        raise _cannot_prepare("reading_only")

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return that nothing can be said."""
        del request, preparation
        return "reading_only"

    def dispatch(self, order: Order) -> Answer:
        """Never send.

        Raises:
            NotDispatchedError: always, `reading_only`.
        """
        del order
        raise NotDispatchedError("reading_only")

    def inspect(self, look: Look) -> Inspection:
        """See nothing."""
        del look
        return Inspection(seen=Seen.UNCLEAR, source=self.kind)


class _Inner:
    """What is called of a third party's object; for the type checker, never made."""

    def prepare(self, request: Request) -> object: ...
    def still_holds(self, request: Request, preparation: Preparation) -> object: ...
    def dispatch(self, order: Order) -> object: ...
    def inspect(self, look: Look) -> object: ...


def _implementation(settings: PythonSettings, code: str) -> str:
    said = {"adapter": settings.adapter, "code": code, "settings": dict(settings.settings)}
    return implementation_digest("python", _SOURCES, said)


def _digest(code: Code) -> str:
    """Return the digest of the files as they are now; files that cannot be read are not the admitted ones."""
    try:
        return code.digest()
    except CodeRefusedError:
        return _NO_CODE


def _copied(request: Request) -> Request:
    """Return a request that the adapter cannot reach into."""
    return Request(
        values=MappingProxyType(dict(request.values)),
        registries=MappingProxyType(
            {name: MappingProxyType(dict(row)) for name, row in request.registries.items()}
        ),
    )


def _pinned(found: Preparation) -> Preparation:
    """Return a copy of what was pinned, all the way down.

    Raises:
        PreparationRefusedError: it has no canonical form.
    """
    parts: object = None
    code = ""
    try:
        sections = [dict(found.actual), dict(found.destination), dict(found.preconditions)]
        parts = parse_strict(canonical_bytes(sections))
    except Malformed as fault:
        code = fault.code
    except (TypeError, ValueError, AttributeError):
        code = "wrong_type"
    if code or type(parts) is not list:
        raise _cannot_prepare(f"preparation_{code}")
    actual, destination, preconditions = parts
    return Preparation(actual=actual, destination=destination, preconditions=preconditions)


def _believed(answer: object, settings: PythonSettings) -> Answer:
    if type(answer) is not Answer or type(answer.proof) is not Proof:
        raise AnswerMalformedError
    proof = answer.proof if answer.proof in settings.proofs else Proof.NOTHING
    # Beside a proof of no effect a charge contradicts it, declared or not, and nothing may be released (REC-05).
    charged = answer.charged if settings.charges or proof is Proof.NO_EFFECT else None
    return Answer(
        proof=proof, source=settings.source, reference=_reference(answer.reference), charged=charged
    )


def _reference(said: object) -> str:
    return said if type(said) is str and _REFERENCE.fullmatch(said) is not None else ""


def _word(said: object, instead: str) -> str:
    return said if type(said) is str and _WORD.fullmatch(said) is not None else instead


def _field(said: object, request: Request) -> str | None:
    return said if type(said) is str and said in request.values else None


def _cannot_prepare(code: str, field: str | None = None) -> PreparationRefusedError:
    return PreparationRefusedError(code, field, "The operation's adapter cannot prepare this.")
