"""The tables of a profile as frozen values: one class for each table, one attribute for each key.

Decides which keys exist, which are required, their defaults and, through `issuer/profile/fields.py`, what
each value may be. An attribute has the key's name unless Python or clarity needs another one (`lifetime_ms`
for `lifetime`); the alias is the key. Unknown keys are refused and nothing is coerced. What keys mean
together (references, bounds, templates) is decided by the `rules_*` modules, and an instance that did not
pass them never leaves this package. Each description is the text of the reference page. How an operation is
carried out has its tables in `issuer/profile/models_adapters.py`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from issuer.profile.fields import (
    PERMITS,
    Amount,
    ColumnName,
    ContentTemplate,
    Cost,
    Count,
    Digest,
    Distinct,
    Duration,
    EffectsMax,
    FieldName,
    FormatNumber,
    FrozenMap,
    IntRange,
    Login,
    Name,
    OnlyTrue,
    PositiveVersion,
    RecordBytes,
    ResourceType,
    Retention,
    Says,
    SegmentBytes,
    SpanBytes,
    StringBytes,
    Text,
    TextTemplate,
    Unended,
    UnitName,
    Url,
)
from issuer.profile.limits import WAIT
from issuer.profile.models_adapters import (
    Absent,
    Before,
    FileAdapter,
    HostAdapter,
    HttpAdapter,
    Inspect,
    Proves,
    PythonAdapter,
    Wrapper,
)
from issuer.profile.table import Table
from ledger.capacity import (
    EFFECTS_MAX,
    RECORD_BYTES_MAX,
    SPAN_BYTES_MAX,
    UNENDED_PER_TASK_MAX,
    Capacity,
)
from ledger.model import DurationMs

__all__ = [
    "Absent",
    "ActionClass",
    "Actor",
    "Audit",
    "Before",
    "Checkpoint",
    "FieldKind",
    "FileAdapter",
    "Host",
    "HostAdapter",
    "HttpAdapter",
    "Inspect",
    "LedgerBounds",
    "NoticeKind",
    "Notify",
    "ObligationTerm",
    "Operation",
    "PayloadField",
    "PermitCount",
    "Person",
    "Proves",
    "PythonAdapter",
    "RegistrySource",
    "Resource",
    "Sink",
    "Table",
    "Visibility",
    "Wrapper",
]

Mode = Literal["strict", "ordinary"]
DayKey = Annotated[str, Says(words="`permits` or unit")]
Zone = Annotated[Text, Says(words="IANA zone")]
AdapterKind = Literal["http", "host", "file", "python"]
NoticeKind = Literal[
    "awaiting_approval", "outcome_unknown", "frozen", "sink_down", "nearly_full", "checkpoint_failed"
]
Role = Literal["owner", "host", "approver", "reviewer", "operator"]


class FieldKind(StrEnum):
    """The five kinds of payload field; the value is the key that declares it."""

    STRING = "string"
    INT = "int"
    ONE_OF = "one_of"
    REGISTRY = "registry"
    BOOL = "bool"


class Visibility(StrEnum):
    """Who may see a payload field (EFF-10)."""

    PUBLIC = "public"
    SENSITIVE = "sensitive"
    SECRET = "secret"  # noqa: S105  # a class of fields, not a credential


class Sink(Table):
    """`[audit] sink.NAME`: one place that receives every span (AUD-02)."""

    type: Literal["jsonl", "otlp", "python"] = Field(
        description="A synced JSON Lines file, an OTLP endpoint, or a third party's code."
    )
    path: Text | None = Field(
        default=None,
        description="Folder of the file, below the user's state folder unless absolute; needed by `jsonl`.",
    )
    segment: SegmentBytes | None = Field(
        default=None,
        description="Bytes at which a `jsonl` file is full and the next one is begun; 64 MiB without it.",
    )
    url: Url | None = Field(default=None, description="Endpoint; needed by `otlp`, and only there.")
    bearer: Name | None = Field(
        default=None, description="Credential sent to the endpoint as bearer token; kept by the issuer."
    )
    plugin: Name | None = Field(
        default=None, description="Its name in the entry points `permit_issuer.sinks`; needed by `python`."
    )
    digest: Digest | None = Field(
        default=None, description="Digest of its source files, needed by `python`; another one is refused."
    )
    settings: FrozenMap[Name, Text] = Field(
        default={}, description="What a `python` sink is made with; never a secret."
    )
    required: bool = Field(
        default=True, description="Dispatch waits for it. At least one sink is required, in every mode."
    )


class Checkpoint(Table):
    """`[audit] checkpoint`: signed checkpoints by themselves, with a copy elsewhere (AUD-04)."""

    every_ms: Duration = Field(
        alias="every", description="Time between two checkpoints while commands are given."
    )
    copy_to: Text | None = Field(
        default=None, description="Folder, best on another machine, that keeps a copy of each."
    )


class Audit(Table):
    """`[audit]`: where spans go before anything is sent."""

    sinks: FrozenMap[Name, Sink] = Field(alias="sink", description="The sinks, by name.")
    checkpoint: Checkpoint | None = Field(
        default=None,
        description="When checkpoints are signed; without it on demand, and every 1,000 spans.",
    )

    @property
    def required(self) -> frozenset[str]:
        """The names of the sinks that dispatch waits for (ADM-03)."""
        return frozenset(name for name, sink in self.sinks.items() if sink.required)


class LedgerBounds(Table):
    """`[ledger]`: how much the ledger may hold; at a bound new effects are refused (LED-02)."""

    effects: EffectsMax = Field(default=EFFECTS_MAX, description="Effects with their whole record.")
    record_bytes: RecordBytes = Field(
        default=RECORD_BYTES_MAX, description="Bytes of records, of tombstones too."
    )
    span_bytes: SpanBytes = Field(default=SPAN_BYTES_MAX, description="Bytes of the trail.")
    unended_per_task: Unended = Field(
        default=UNENDED_PER_TASK_MAX, description="Effects of one task that are not over."
    )
    keep_ms: Retention = Field(
        default="30d",  # type: ignore[assignment]  # read, and shown on the page, as an owner writes it
        alias="keep",
        description="How long a record is kept once an effect has ended, as long as there is room.",
    )

    @property
    def capacity(self) -> Capacity:
        """The bounds as the ledger is held to them."""
        return Capacity(
            effects_max=self.effects,
            record_bytes_max=self.record_bytes,
            span_bytes_max=self.span_bytes,
            unended_per_task_max=self.unended_per_task,
        )


class Person(Table):
    """`[person] NAME`: who somebody is; what they may do is policy."""

    roles: Distinct[Role] = Field(default=(), description="Roles; whoever has none is only a subject.")
    groups: Distinct[Name] = Field(default=(), description="Groups that policies name.")
    login: Login | None = Field(default=None, description="How the person's calls are recognised.")
    key: Text | None = Field(
        default=None,
        description="File with the person's own public keys, below the profile's folder (APP-01).",
    )


class Actor(Table):
    """`[actor] NAME`: an agent or program that acts."""

    answers_to: Name = Field(description="The person whose actor it is.")
    groups: Distinct[Name] = Field(default=(), description="Groups that policies name.")
    login: Login | None = Field(
        default=None, description="How its calls are recognised, where it calls itself."
    )


class Host(Table):
    """`[host] NAME`: a program that asks for permits, and for whom it may speak."""

    actors: Distinct[Name] = Field(description="The actors it speaks for.")
    subjects: Distinct[Name] = Field(description="The people for whom it may ask.")
    login: Login | None = Field(default=None, description="How its calls are recognised.")


class RegistrySource(Table):
    """`[registry] NAME`: a CSV file of the owner from which an actor names an entry (EFF-12)."""

    file: Text = Field(description="CSV file in UTF-8 with a header; relative to the profile.")
    key: ColumnName = Field(description="The column that actors name; unique in the file.")
    fields: Distinct[ColumnName] = Field(description="The other columns that templates may use.")


class PermitCount(Table):
    """A bound that counts permits."""

    permits: Count = Field(description="How many permits are issued without a person.")


class ActionClass(Table):
    """`[class.NAME]`: the finite bounds of automatic permits, held by the ledger as well (POL-03)."""

    automatic: bool = Field(default=True, description="May a policy issue without a person?")
    each: FrozenMap[UnitName, Amount] = Field(
        default={}, description="Highest cost of one effect, per unit. Needed where automatic."
    )
    per_task: PermitCount | None = Field(default=None, description="Per task. Needed where automatic.")
    per_root: PermitCount | None = Field(
        default=None, description="Per root task with everything below it. Needed where automatic."
    )
    per_day: FrozenMap[DayKey, Amount] = Field(
        default={}, description="Per day in the profile's zone: `permits`, and cost per unit."
    )
    lifetime_ms: Duration = Field(alias="lifetime", description="Longest life of a permit of this class.")
    wait_ms: Duration = Field(
        default=WAIT,  # type: ignore[assignment]  # read, and shown on the page, as an owner writes it
        alias="wait",
        description="How long an effect of this class may wait for a person.",
    )

    @property
    def permits_per_day(self) -> int | None:
        """Permits a day, or None where the day is not bounded by a count."""
        return self.per_day.get(PERMITS)

    @property
    def units_per_day(self) -> Mapping[str, int]:
        """Cost a day for each unit that has a bound."""
        return {unit: amount for unit, amount in self.per_day.items() if unit != PERMITS}


class Resource(Table):
    """`resource`: the object that will change, as policies and approvers see it (EFF-02)."""

    type: ResourceType = Field(description="Its type in the policies.")
    id: TextTemplate = Field(description="Its identity, from the payload.")
    recipients: Distinct[TextTemplate] = Field(default=(), description="Who receives something.")


class PayloadField(Table):
    """`payload.FIELD`: exactly one kind, and who may see it; neither flag means sensitive (EFF-10)."""

    string_bytes_max: StringBytes | None = Field(
        default=None, alias="string", description="Text; its greatest length in bytes of UTF-8."
    )
    int_range: IntRange | None = Field(default=None, alias="int", description="Whole number within a range.")
    one_of: Distinct[Text] | None = Field(default=None, description="One of these texts.")
    registry: Name | None = Field(default=None, description="The key of an entry of this registry.")
    bool_flag: OnlyTrue | None = Field(default=None, alias="bool", description="True or false.")
    public: bool = Field(default=False, description="Stands in clear in binding and audit.")
    secret: bool = Field(default=False, description="Reaches neither policies nor any view.")

    @property
    def kinds(self) -> tuple[FieldKind, ...]:
        """The declared kinds; exactly one in a profile that was accepted."""
        given = {
            FieldKind.STRING: self.string_bytes_max,
            FieldKind.INT: self.int_range,
            FieldKind.ONE_OF: self.one_of,
            FieldKind.REGISTRY: self.registry,
            FieldKind.BOOL: self.bool_flag,
        }
        return tuple(kind for kind, value in given.items() if value is not None)

    @property
    def kind(self) -> FieldKind:
        """The kind of the field."""
        return self.kinds[0]

    @property
    def visibility(self) -> Visibility:
        """Who may see the field."""
        if self.secret:
            return Visibility.SECRET
        return Visibility.PUBLIC if self.public else Visibility.SENSITIVE


class Operation(Table):
    """`[operation.NAME]`: one protected operation; exactly one of `http`, `host`, `file` and `python` (OPR-01)."""

    action_class: Name = Field(alias="class", description="Its class.")
    version: PositiveVersion = Field(default=1, description="Counts up when its meaning changes.")
    lifetime_ms: Duration | None = Field(
        default=None, alias="lifetime", description="Longest life of its permits; the class's also holds."
    )
    resource: Resource = Field(description="The object that will change.")
    payload: FrozenMap[FieldName, PayloadField] = Field(description="The fields an actor may say.")
    cost: FrozenMap[UnitName, Cost] = Field(description="Cost per unit; at least one.")
    http: HttpAdapter | None = Field(default=None, description="The issuer sends an HTTP request.")
    body: FrozenMap[Text, ContentTemplate] | None = Field(
        default=None, description="JSON object that is sent; only with `http`. `{effect_id}` is allowed."
    )
    proves: Proves | None = Field(default=None, description="What answers prove; only with `http`.")
    host: HostAdapter | None = Field(default=None, description="The host sends.")
    file: FileAdapter | None = Field(default=None, description="The issuer changes a file.")
    python: PythonAdapter | None = Field(default=None, description="An admitted adapter sends.")
    inspect: Inspect | None = Field(default=None, description="How to learn the truth later.")
    before: Before | None = Field(default=None, description="What is read before a decision.")
    cleanup: Distinct[Name] = Field(
        default=(), description="Obligations of every permit for it: what has to be put in order afterwards."
    )
    after_approval: Literal["commit"] | None = Field(
        default=None, description="The issuer itself commits once approved; not with `host`."
    )
    notify: Distinct[Name] = Field(
        default=(), description="Who is told that an effect waits for approval or has an unknown outcome."
    )

    @property
    def credentials(self) -> tuple[str, ...]:
        """The names of all credentials that the operation uses."""
        named = (
            None if self.http is None else self.http.bearer,
            None if self.before is None else self.before.bearer,
            None if self.inspect is None else self.inspect.bearer,
        )
        return tuple(name for name in named if name is not None)

    @property
    def adapters(self) -> tuple[AdapterKind, ...]:
        """The declared adapters; exactly one in a profile that was accepted."""
        given: tuple[tuple[AdapterKind, object], ...] = (
            ("http", self.http),
            ("host", self.host),
            ("file", self.file),
            ("python", self.python),
        )
        return tuple(name for name, table in given if table is not None)

    @property
    def adapter(self) -> AdapterKind:
        """The adapter of the operation."""
        return self.adapters[0]


class ObligationTerm(Table):
    """`[obligation.NAME]`: what a policy's `@obligation` asks for after an effect (EFF-09)."""

    within_ms: Retention = Field(
        default=DurationMs(24 * 3_600_000), alias="within", description="Time to do it, from the permit on."
    )


class Notify(Table):
    """`[notify.NAME]`: where people are told that something waits for them; exactly one of `command` and `spool`."""

    command: tuple[Text, ...] | None = Field(
        default=None,
        description="Program by its full path, and arguments. No shell; the notice comes on its stdin.",
    )
    spool: Text | None = Field(
        default=None,
        description="Folder in which one JSON file a notice appears; below the profile's folder unless absolute.",
    )
    on: Distinct[NoticeKind] = Field(description="What is told here.")


class Document(Table):
    """The file as a whole."""

    format: FormatNumber = Field(description="The format of this file.")
    name: Name = Field(description="The issuer's name, in every answer.")
    mode: Mode = Field(description="Which promise is given; every answer says which.")
    timezone: Zone = Field(description="IANA zone: the clock of policies and of `per_day`.")
    audit: Audit = Field(description="Where spans go.")
    ledger: LedgerBounds = Field(
        default_factory=LedgerBounds, description="How much the ledger may hold, and how long."
    )
    people: FrozenMap[Name, Person] = Field(default={}, alias="person", description="People, by name.")
    actors: FrozenMap[Name, Actor] = Field(default={}, alias="actor", description="Actors, by name.")
    hosts: FrozenMap[Name, Host] = Field(default={}, alias="host", description="Hosts, by name.")
    registries: FrozenMap[Name, RegistrySource] = Field(
        default={}, alias="registry", description="Registries, by name."
    )
    classes: FrozenMap[Name, ActionClass] = Field(default={}, alias="class", description="Classes, by name.")
    operations: FrozenMap[Name, Operation] = Field(
        default={}, alias="operation", description="Operations, by name."
    )
    obligations: FrozenMap[Name, ObligationTerm] = Field(
        default={}, alias="obligation", description="Obligations of policies, by name."
    )
    notices: FrozenMap[Name, Notify] = Field(
        default={}, alias="notify", description="Where people are told, by name."
    )
