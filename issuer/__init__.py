"""The application: what a permit issuer does, put together from ledger, policies and audit.

`Issuer` is the Python API. It is loaded when it is first asked for, so that `issuer --help` stays quick.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from issuer.api import Issuer

__all__ = ["Issuer"]


def __getattr__(name: str) -> object:
    """Load the public names when they are first used (PEP 562)."""
    if name == "Issuer":
        from issuer.api import Issuer  # noqa: PLC0415 - the point of this function

        return Issuer
    raise AttributeError(name)
