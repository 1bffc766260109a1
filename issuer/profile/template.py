"""A template as a value of the profile: the text that the owner wrote, and what the issuer reads in it.

The language and its parser are those of `issuer/operations/templates.py`, so that a profile is checked with
the very reader that fills the template later. The text is kept beside it for the digest. Which placeholders
may stand where is decided by `issuer/profile/rules_templates.py`.
"""

from dataclasses import dataclass

from issuer.operations.templates import EFFECT_ID_NAME, Placeholder, Template

__all__ = ["EFFECT_ID_NAME", "Placeholder", "Template", "TemplateText", "written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateText:
    """One template of the profile; `text` as written, `parsed` ready to be rendered."""

    text: str
    parsed: Template


def written(placeholder: Placeholder) -> str:
    """Return the placeholder as an owner writes it."""
    column = "" if placeholder.column is None else f".{placeholder.column}"
    return f"{{{placeholder.name}{column}}}"
