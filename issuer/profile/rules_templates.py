"""Rules of templates: does every placeholder exist, and may it stand where it stands?

Rules: `{field}` is a payload field, `{field.column}` a column of the registry that the field names an entry
of, `{effect_id}` stands only where the issuer fills it at dispatch or inspection. A secret field (EFF-10)
appears in no resource, recipient, address or path, because policies, approvers and the audit see those. It
may be sent: in a body, a file's content, and in what an inspection compares. Pure.
`issuer/profile/reading.py` comes next.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from issuer.profile.draft import Draft
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import FieldKind, Operation, PayloadField
from issuer.profile.template import EFFECT_ID_NAME, Placeholder, TemplateText, written

__all__ = ["template_problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """One template of an operation, and what may stand in it."""

    path: KeyPath
    template: TemplateText | None
    effect_id: bool = False
    secret: bool = False


def template_problems(draft: Draft) -> Iterator[Problem]:
    """Yield every problem of every template, except costs (`rules_operations`)."""
    for name, operation in draft.operations.items():
        for use in _uses(("operation", name), operation):
            if use.template is not None:
                for placeholder in use.template.parsed.placeholders:
                    yield from _placeholder_problems(draft, operation, use, placeholder)


def _uses(path: KeyPath, operation: Operation) -> Iterator[_Use]:
    """Yield all templates of one operation with the rights of their place."""
    resource = (*path, "resource")
    yield _Use(path=(*resource, "id"), template=operation.resource.id)
    for index, recipient in enumerate(operation.resource.recipients):
        yield _Use(path=(*resource, "recipients", index), template=recipient)
    if operation.http is not None:
        yield _Use(path=(*path, "http", "url"), template=operation.http.url, effect_id=True)
    for name, part in (operation.body or {}).items():
        yield _Use(path=(*path, "body", name), template=part, effect_id=True, secret=True)
    if operation.file is not None:
        yield _Use(path=(*path, "file", "path"), template=operation.file.path)
        yield _Use(path=(*path, "file", "content"), template=operation.file.content, secret=True)
    if operation.inspect is not None:
        equals = operation.inspect.equals
        yield _Use(path=(*path, "inspect", "url"), template=operation.inspect.url, effect_id=True)
        yield _Use(path=(*path, "inspect", "equals"), template=equals, effect_id=True, secret=True)
    if operation.before is not None:
        yield _Use(path=(*path, "before", "url"), template=operation.before.url)


def _placeholder_problems(
    draft: Draft, operation: Operation, use: _Use, placeholder: Placeholder
) -> Iterator[Problem]:
    if placeholder.is_effect_id:
        if not use.effect_id:
            message = f"{written(placeholder)} stands only in `http.url`, `body` and `inspect`."
            yield Problem(path=use.path, code=FindingCode.UNKNOWN_PLACEHOLDER, message=message)
        return
    field = operation.payload.get(placeholder.name)
    if field is None:
        known = (*operation.payload, EFFECT_ID_NAME) if use.effect_id else tuple(operation.payload)
        yield Problem(
            path=use.path,
            code=FindingCode.UNKNOWN_PLACEHOLDER,
            message=f"{written(placeholder)} names no payload field.",
            wanted=placeholder.name,
            candidates=known,
        )
        return
    if field.secret and not use.secret:
        message = (
            f"{written(placeholder)} is secret and would be shown here to policies, approvers and the audit."
        )
        yield Problem(path=use.path, code=FindingCode.SECRET_EXPOSED, message=message)
    if placeholder.column is not None:
        yield from _column_problems(draft, use, placeholder, placeholder.column, field)


def _column_problems(
    draft: Draft, use: _Use, placeholder: Placeholder, column: str, field: PayloadField
) -> Iterator[Problem]:
    if field.kinds != (FieldKind.REGISTRY,) or field.registry is None:
        message = f"{written(placeholder)} asks for a column, but `{placeholder.name}` names no registry."
        yield Problem(path=use.path, code=FindingCode.UNKNOWN_PLACEHOLDER, message=message)
        return
    source = draft.registries.get(field.registry)
    # A registry that does not exist, or is not well formed, has its own finding.
    if source is not None and column not in (source.key, *source.fields):
        yield Problem(
            path=use.path,
            code=FindingCode.UNKNOWN_PLACEHOLDER,
            message=f'The registry "{field.registry}" declares no field `{column}`.',
            wanted=column,
            candidates=(source.key, *source.fields),
        )
