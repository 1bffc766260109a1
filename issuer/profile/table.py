"""The manner of every table of a profile: strict, frozen, no key that is not declared.

`issuer/profile/models.py` and `issuer/profile/models_adapters.py` come next: one class for each table.
"""

from pydantic import BaseModel, ConfigDict

__all__ = ["Table"]


class Table(BaseModel):
    """The manner of every table: strict, frozen, no key that is not declared."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True, validate_default=True
    )
