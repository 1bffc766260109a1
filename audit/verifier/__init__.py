"""The verifier in one file: what a reviewer checks a trail with who has neither this package nor a profile (AUD-09).

It is data here: nothing of the house imports `permit_audit_verifier`, and it imports nothing of the house, so that a
fault of ours cannot hide itself. Tests hold the two against each other. ADR-0030 says why there are two.
"""

from importlib.resources import files

__all__ = ["verifier_text"]


def verifier_text() -> str:
    """Return the text of the verifier, as `issuer audit verifier` prints it."""
    return files(__name__).joinpath("permit_audit_verifier.py").read_text(encoding="utf-8")
