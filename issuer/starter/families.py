"""The example families of `init --with`: which exist, who is needed for each, and what to type first.

Each family is a folder of data beside this file: its part of the profile, its policies, the cases that those policies
must answer, and its registry where it has one. Next: `issuer.starter.profile` puts the chosen ones together.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

INVOICES: Final = "invoices"
PACKAGES: Final = "packages"
RECORDS: Final = "records"

FAMILIES: Final = (INVOICES, PACKAGES, RECORDS)
"""Every family, in the order in which the files tell them."""

REGISTRY_FILES: Final = MappingProxyType({INVOICES: ("vendors.csv",)})
"""The registry files that a family's part of the profile names, beside the profile."""

PEOPLE: Final = (
    ("alice", ("owner", "operator"), {PACKAGES: "platform"}, FAMILIES),
    ("bob", ("approver",), {INVOICES: "finance"}, (INVOICES,)),
    ("carol", ("approver",), {INVOICES: "finance", RECORDS: "stewards", PACKAGES: "platform"}, FAMILIES),
)
"""Name, roles, the group that each family needs the person in, and the families that need the person at all."""

ACTORS: Final = (
    ("ap-bot", {INVOICES: "pay-bots"}, (INVOICES, RECORDS)),
    ("rel-bot", {PACKAGES: "release-bots"}, (PACKAGES,)),
)
"""Name, groups and families like `PEOPLE`; every actor answers to the owner."""

OWNER: Final = "alice"

_FIRST_STEPS: Final = MappingProxyType(
    {
        PACKAGES: (
            "issuer task open release-2.4 --subject alice --actor rel-bot --class release=3 --budget publish=3",
            """echo '{"name": "@acme/tool", "version": "2.4.0-rc.1", "integrity": "sha512-example"}' | \\""",
            "    issuer request publish_package --task release-2.4 --actor rel-bot --payload -",
            "issuer dispatch EFFECT -- echo published    # in its place: your npm publish",
        ),
        RECORDS: (
            "issuer task open clean-up --subject alice --actor ap-bot --class deletion=5 --budget record=5",
            """echo '{"table": "leads", "record": 7}' | \\""",
            "    issuer request delete_record --task clean-up --actor ap-bot --payload -    # a person has to approve",
            "issuer approvals",
        ),
        INVOICES: (
            (
                "issuer task open accounts-payable --subject bob --actor ap-bot --class payment=20 "
                "--budget EUR.cent=200000"
            ),
            "issuer task open ap-today --parent accounts-payable --budget EUR.cent=60000",
            """echo '{"vendor": "hetzner", "number": "R-118", "amount_cents": 14950}' | \\""",
            "    issuer request pay_invoice --task ap-today --actor ap-bot --payload -",
            "    # cannot_prepare, until profile.toml has your service in place of bank.example: then issuer activate",
        ),
    },
)
"""Three commands for each family, as lines of a shell. The families that work without any service come first."""


def chosen(families: Sequence[str]) -> tuple[str, ...]:
    """Return `families` each once, in the order of the files.

    Raises:
        KeyError: one does not exist; whose fault: the caller's.
    """
    unknown = set(families).difference(FAMILIES)
    if unknown:
        raise KeyError(min(unknown))
    return tuple(family for family in FAMILIES if family in families)


def first_steps(families: Sequence[str]) -> tuple[str, ...]:
    """Return what to type first where `families`, at least one, were chosen: three commands of one of them."""
    return next(lines for family, lines in _FIRST_STEPS.items() if family in families)
