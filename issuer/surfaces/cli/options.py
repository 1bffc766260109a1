"""What every command understands, before or after the subcommand: `--profile`, `--token`, `--json`; and values."""

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

import click

from issuer.likeness import did_you_mean

if TYPE_CHECKING:
    from ledger.model import InstantMs

PAYLOAD_BYTES_MAX: Final = 1024 * 1024
"""Bytes read of a payload file: beyond the bound that the reader itself names, so that its refusal is the one told."""

TOKEN_FILE_ENV: Final = "ISSUER_TOKEN_FILE"  # noqa: S105 - where the path of one is read, not a credential

_DURATION: Final = re.compile(r"([1-9][0-9]{0,6})(s|m|h|d)\Z")
_UNIT_MS: Final[Mapping[str, int]] = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TASK_HOURS: Final = "24h"
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActOptions:
    """What was typed about a signature: whose act it is, and how it is or was signed."""

    person: str | None = None
    key: Path | None = None
    statement: bool = False
    signature: Path | None = None
    statement_file: Path | None = None


NOT_SIGNED: Final = ActOptions()


@dataclass(slots=True, kw_only=True)
class Settings:
    """The options that every command has, and those of an act where one is signed."""

    profile: Path | None = None
    as_json: bool = False
    token: str | None = None
    act: ActOptions = NOT_SIGNED

    @property
    def token_source(self) -> str | None:
        """Where a host's or actor's token is read: `--token`, else the variable; None where the account calls."""
        return self.token or os.environ.get(TOKEN_FILE_ENV) or None

    @property
    def profile_path(self) -> Path:
        """The profile in force: the one named, else `./profile.toml`."""
        return self.profile or Path("profile.toml")


def settings_of(context: click.Context) -> Settings:
    """Return the settings of this run, made once."""
    return context.ensure_object(Settings)


def common(function: Callable[Concatenate[Settings, P], None]) -> Callable[P, None]:
    """Give a command `--profile`, `--token` and `--json`, and hand it the settings first."""

    @click.option("--profile", "profile_", type=click.Path(path_type=Path), help="The owner's profile.")
    @click.option("--token", "token_", metavar="FILE|-", help="Call as the host or actor of this token.")
    @click.option("--json", "json_", is_flag=True, help="Print exactly one JSON object.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(
        context: click.Context,
        /,
        profile_: Path | None,
        token_: str | None,
        json_: bool,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        settings = settings_of(context)
        settings.profile = profile_ or settings.profile
        settings.token = token_ or settings.token
        settings.as_json = json_ or settings.as_json
        function(settings, *args, **kwargs)

    return wrapped  # type: ignore[return-value]  # click adds the parameters that it takes away


def signable(function: Callable[P, None]) -> Callable[P, None]:
    """Give an owner's or operator's command the options of a signature, and put them into the settings."""
    path = click.Path(path_type=Path, dir_okay=False)

    @click.option(
        "--as", "person_", metavar="PERSON", help="Whose act it is, signed with --key or --signature."
    )
    @click.option("--key", "key_", type=path, help="The person's OpenSSH key: sign at once.")
    @click.option("--statement", "statement_", is_flag=True, help="Print what has to be signed; do nothing.")
    @click.option("--signature", "signature_", type=path, help="The signature over --statement-file.")
    @click.option("--statement-file", "statement_file_", type=path, help="The statement that was signed.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(
        context: click.Context,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        said: dict[str, Any] = {name: kwargs.pop(f"{name}_") for name in ActOptions.__slots__}
        settings_of(context).act = ActOptions(**said)
        function(*args, **kwargs)

    return wrapped


def payload_bytes(source: str) -> bytes:
    """Return the payload document from a file, or from standard input for `-`."""
    try:
        if source == "-":
            return sys.stdin.buffer.read(PAYLOAD_BYTES_MAX)
        with Path(source).open("rb") as file:
            return file.read(PAYLOAD_BYTES_MAX)
    except OSError as fault:
        raise click.UsageError(f"The payload cannot be read: {fault.strerror}.") from None


def families_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the example families that `--with` names, separated by commas; none where the option is not given."""
    from issuer.starter import FAMILIES

    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in FAMILIES:
            known = f"{', '.join(FAMILIES[:-1])} and {FAMILIES[-1]}"
            say = f"--with knows {known}, and no {name!a}. {did_you_mean(name.lower(), FAMILIES)}"
            raise click.UsageError(say.rstrip())
    return tuple(dict.fromkeys(names))


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        unit, equals, value = text.partition("=")
        if not equals or not unit or not value:
            raise click.UsageError(f"{option} is written UNIT=AMOUNT, for example {option} EUR.cent=50000.")
        if unit in pairs:
            raise click.UsageError(f"{option} names {unit} twice.")
        pairs[unit] = value
    return pairs


def _whole(text: str, option: str) -> int:
    # Minus zero is no spelling of 0, in a payload either (EFF-05).
    if not re.fullmatch(r"(?!-0+\Z)-?[0-9]{1,20}", text, re.ASCII):
        raise click.UsageError(f"{option} needs a whole number after the equals sign.")
    return int(text)


def whole_pairs(texts: Sequence[str]) -> dict[str, int]:
    """Return `UNIT=AMOUNT` texts as amounts per unit."""
    return {unit: _whole(value, "--budget") for unit, value in _pairs(texts, "--budget").items()}


def budget_pairs(texts: Sequence[str]) -> dict[str, int | str]:
    """Return `UNIT=AMOUNT` and `UNIT=inherit` texts per unit."""
    return {
        unit: value if value == "inherit" else _whole(value, "--budget")
        for unit, value in _pairs(texts, "--budget").items()
    }


def count_pairs(texts: Sequence[str], option: str) -> dict[str, int | str] | None:
    """Return `NAME=COUNT` and `NAME=inherit` texts per name; None where the option is not given.

    A resource's name may hold an equals sign itself, so the last one counts.
    """
    counts: dict[str, int | str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} is written NAME=COUNT, for example {option} payment=20.")
        if name in counts:
            raise click.UsageError(f"{option} names {name} twice.")
        counts[name] = value if value == "inherit" else _whole(value, option)
    return counts or None


def duration_ms(text: str, option: str) -> int:
    """Return a duration such as `30m` in milliseconds."""
    duration = _DURATION.match(text)
    if duration is None:
        raise click.UsageError(f"{option} is a duration such as 30s, 30m or 8h.")
    return int(duration[1]) * _UNIT_MS[duration[2]]


def expiry_ms(text: str | None, option: str = "--expires") -> "InstantMs":
    """Return the instant that `option` names: a time with an offset, or a duration from now."""
    from issuer.clock import now_ms, parse_instant
    from ledger.errors import Malformed
    from ledger.model import InstantMs

    said = _TASK_HOURS if text is None else text
    duration = _DURATION.match(said)
    if duration is not None:
        return InstantMs(now_ms() + int(duration[1]) * _UNIT_MS[duration[2]])
    try:
        return parse_instant(said, option)
    except Malformed as fault:
        raise click.UsageError(f"{fault.message}, or a duration such as 8h.") from None
