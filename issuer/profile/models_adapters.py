"""The tables of how an operation is carried out: who sends, what answers prove, what is read before and afterwards.

Decides which keys exist there, in the manner of `issuer/profile/models.py`, which comes next and holds the operation
itself.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from issuer.profile.fields import (
    ContentTemplate,
    Digest,
    Distinct,
    Duration,
    EnvironmentName,
    FieldName,
    FrozenMap,
    HeaderName,
    JsonPointer,
    Name,
    RelativePath,
    Retention,
    Says,
    Status,
    Text,
    TextTemplate,
    UnitName,
    UrlTemplate,
    refused,
)
from issuer.profile.findings import FindingCode
from issuer.profile.table import Table
from ledger.model import DurationMs

__all__ = [
    "Absent",
    "Before",
    "FileAdapter",
    "HostAdapter",
    "HttpAdapter",
    "Inspect",
    "Proves",
    "PythonAdapter",
    "Resend",
    "Wrapper",
]


class HttpAdapter(Table):
    """`http`: the issuer sends one HTTP request."""

    method: Literal["POST", "PUT", "DELETE", "PATCH"] = Field(description="HTTP method.")
    url: UrlTemplate = Field(description="Address; `{effect_id}` is allowed.")
    bearer: Name | None = Field(
        default=None, description="Credential sent as bearer token; kept by the issuer."
    )
    once: HeaderName | None = Field(default=None, description="Header that carries the idempotency key.")
    if_match: bool = Field(
        default=False,
        description="Sends the entity tag that `before` read; the service refuses what changed.",
    )


class Resend(Table):
    """`proves.resend`: sending again under the same key is safe, and why (REC-03); only reconciliation ever does it."""

    because: Text = Field(
        description="Why the same key with the same content cannot create another effect, also at the same time and "
        "with another payload, and is answered like the first."
    )


class Proves(Table):
    """`proves`: what each answer of the service proves; any other answer proves nothing (OPR-01)."""

    succeeded: Distinct[Status] = Field(default=(), description="The effect happened.")
    failed: Distinct[Status] = Field(default=(), description="It was tried and failed; it may have cost.")
    no_effect: Distinct[Status] = Field(default=(), description="Nothing happened.")
    accepted: Distinct[Status] = Field(
        default=(), description="It was taken, and is not done: the effect stays unknown until inspected."
    )
    partial: Distinct[Status] = Field(
        default=(), description="A part happened; the rest is not proven, so the effect stays unknown."
    )
    charged: FrozenMap[UnitName, JsonPointer] = Field(
        default={},
        description="Where the answer says what it cost, per unit. Where it cannot be read, nothing is proven.",
    )
    reference: JsonPointer | None = Field(
        default=None, description="Where the answer shows the service's own reference."
    )
    key_kept_ms: Retention | None = Field(
        default=None, alias="key_kept", description="How long the service remembers the idempotency key."
    )
    resend: Resend | None = Field(
        default=None, description="Lets reconciliation send again under the same key; needs `key_kept`."
    )


class Wrapper(Table):
    """`host.wrapper`: the host's first-hand report counts as it is, and not as a claim (OPR-04, REC-07)."""

    because: Text = Field(description="What constrains the effect to the permitted one, and observes it.")


class HostAdapter(Table):
    """`host`: the host sends and reports; the issuer only grants."""

    deadline_ms: Duration = Field(alias="deadline", description="Time to report; afterwards: unknown.")
    wrapper: Wrapper | None = Field(
        default=None, description="Admits the host as a constraining wrapper; without it its word is a claim."
    )
    environment: Distinct[EnvironmentName] = Field(
        default=(), description="Variables that `issuer dispatch` also passes to the command."
    )


class FileAdapter(Table):
    """`file`: the issuer creates, replaces or deletes one file below a folder."""

    action: Literal["create", "replace", "delete"] = Field(description="What happens to the file.")
    root: Text = Field(description="Folder; relative to the profile, or absolute.")
    path: RelativePath = Field(description="The file below the root.")
    content: ContentTemplate | None = Field(
        default=None, description="Its content; needed by `create` and `replace`, forbidden for `delete`."
    )


class Absent(Table):
    """`inspect.absent`: when "not found" proves that nothing happened (REC-02); `after_ms` None is never."""

    after_ms: DurationMs | None = None
    because: str | None = None


class _AbsentAfter(Table):
    """`{ after = "10m", because = "..." }`, read before it becomes an `Absent`."""

    after_ms: Retention = Field(alias="after")
    because: Text


def _read_absent(value: object) -> object:
    """Accept `"never"` or the table; pydantic reports what is wrong inside the table."""
    if value == "never":
        return Absent()
    if isinstance(value, dict) and set(value) == {"after", "because"}:
        read = _AbsentAfter.model_validate(value)
        if not read.because.strip():
            # REC-02: a delay alone shows nothing, and blanks name nothing that makes late acceptance impossible.
            raise refused(FindingCode.BAD_VALUE, "`because` says what makes a late acceptance impossible.")
        return Absent(after_ms=read.after_ms, because=read.because)
    message = 'This must be "never" or { after = "10m", because = "..." } with both keys.'
    raise refused(FindingCode.BAD_VALUE, message)


class PythonAdapter(Table):
    """`python`: a third party's adapter sends, which the owner admitted by name and digest (OPR-02, ADR-0020)."""

    adapter: Name = Field(
        description="Its name in the entry points `permit_issuer.adapters`, or in the host."
    )
    digest: Digest = Field(description="Digest of its source files; another one is refused at opening.")
    settings: FrozenMap[Name, Text] = Field(default={}, description="What it is made with; never a secret.")
    proves: Distinct[Literal["succeeded", "failed", "no_effect", "accepted", "partial"]] = Field(
        default=(), description="What its answers may prove; any other answer proves nothing."
    )
    charges: bool = Field(default=False, description="Its answers prove what was charged.")
    conditional: Literal["none", "service", "file_system"] = Field(
        default="none", description="Who refuses the write where the target has changed (OPR-04)."
    )
    key_kept_ms: Retention | None = Field(
        default=None, alias="key_kept", description="How long the service remembers the idempotency key."
    )
    absent: (
        Annotated[Absent, BeforeValidator(_read_absent), Says(words='`"never"` or `{ after, because }`')]
        | None
    ) = Field(default=None, description="Given: it inspects, and this is when not finding proves something.")


class Inspect(Table):
    """`inspect`: how reconciliation learns the truth later from a service, whoever sent (REC-01)."""

    url: UrlTemplate = Field(description="Address that is read; `{effect_id}` is allowed.")
    found: JsonPointer = Field(description="Where the answer shows the effect.")
    equals: TextTemplate | None = Field(
        default=None, description="What has to stand there, of the same type; `{effect_id}` is allowed."
    )
    absent: Annotated[
        Absent, BeforeValidator(_read_absent), Says(words='`"never"` or `{ after, because }`')
    ] = Field(description="When not finding it proves that nothing happened.")
    bearer: Name | None = Field(
        default=None,
        description="Credential sent as bearer token; that of `http` where the origin is the same.",
    )
    charged: FrozenMap[UnitName, JsonPointer] = Field(
        default={}, description="Where the answer says what it cost, per unit."
    )
    reference: JsonPointer | None = Field(
        default=None, description="Where the answer shows the service's own reference."
    )


class Before(Table):
    """`before`: a declared read during preparation (EFF-06)."""

    url: UrlTemplate = Field(description="Address that is read.")
    bearer: Name | None = Field(default=None, description="Credential sent as bearer token.")
    etag: bool = Field(default=False, description="The strong entity tag becomes a precondition.")
    facts: FrozenMap[FieldName, Literal["bool", "int", "string"]] = Field(
        default={}, description="Members of the answer that policies see, with their types."
    )
