"""Makes the adapter of an operation whose owner admitted a third party's code.

Rules: OPR-01, OPR-02 (by name and digest, ADR-0020). What a factory returns is an adapter's object and nothing more:
kind and digest are ours. Next: `issuer.operations.registry` registers it with its contract.
"""

from collections.abc import Mapping

from issuer.operations.admitted_code import CodeRefusedError, Factory, load_admitted
from issuer.operations.contract import Proof
from issuer.operations.declaration import (
    Abilities,
    ConditionalWrite,
    RegistrationCode,
    RegistrationRefusedError,
)
from issuer.operations.deriving import Parts
from issuer.operations.python_adapter import PythonAdapter, PythonInspector, PythonSettings, UnloadedAdapter
from issuer.profile import PythonAdapter as Declared

__all__ = ["built_python"]


def built_python(name: str, declared: Declared, handed: Mapping[str, Factory] | None) -> Parts:
    """Return the adapter of the operation `name`, made by the admitted factory.

    Args:
        name: of the operation.
        declared: what the owner wrote.
        handed: an embedding host's factories by name; None loads nothing.

    Raises:
        RegistrationRefusedError: not found, not admitted, or not to be made.
    """
    proofs = frozenset(Proof(proof) for proof in declared.proves)
    if handed is None:
        return Parts(adapter=UnloadedAdapter(_declared_abilities(declared, proofs)))
    settings = PythonSettings(
        operation=name,
        adapter=declared.adapter,
        admitted=declared.digest,
        settings=declared.settings,
        proofs=proofs,
        charges=declared.charges,
    )
    try:
        factory, code = load_admitted(declared.adapter, declared.digest, handed)
    except CodeRefusedError as no:
        raise RegistrationRefusedError(no.code, name, no.more) from None
    inner = _made(factory, settings)
    inspector = None if declared.absent is None else PythonInspector(settings, inner, code)
    return Parts(adapter=PythonAdapter(settings, inner, code), inspector=inspector)


def _made(factory: Factory, settings: PythonSettings) -> object:
    made = None
    try:
        made = factory(dict(settings.settings))
    except Exception:  # noqa: BLE001 - whatever a third party's factory does; its text is not repeated
        made = None
    if made is None:
        raise RegistrationRefusedError(RegistrationCode.ADAPTER_FAILED, settings.operation)
    return made


def _declared_abilities(declared: Declared, proofs: frozenset[Proof]) -> Abilities:
    return Abilities(
        proofs=proofs,
        conditional=ConditionalWrite(declared.conditional),
        key=declared.key_kept_ms is not None,
        charges=declared.charges,
    )
