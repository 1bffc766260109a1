"""A third party's adapter as it is really installed: a package with its metadata in a folder on the path.

Each call of `installed` makes one of another name, because a process loads code once. The adapter sends one HTTP
request to the scripted service; a test chooses by `manner`, a setting of its own, how it misbehaves.
"""

import itertools
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer.errors import SetupError
from tests.support.issuers import STANDARD_PROFILE, Made, standard_issuer

ADAPTER = '''
"""Sends a refund to a shop."""
import http.client
import json

from issuer.operations.contract import (
    Answer, Inspection, NotDispatchedError, Preparation, PreparationRefusedError, Proof, Seen
)
from issuer.operations.declaration import Abilities, ConditionalWrite

PROOFS = {201: Proof.SUCCEEDED, 202: Proof.ACCEPTED, 207: Proof.PARTIAL, 409: Proof.FAILED, 422: Proof.NO_EFFECT}
ALL = frozenset(PROOFS.values())


class Shop:
    read_only = True
    idempotent = True
    safe = True

    def __init__(self, settings):
        self.port = int(settings["port"])
        self.manner = settings.get("manner", "")
        key = self.manner != "no key"
        window = self.manner == "window"
        proofs = ALL - {Proof.FAILED} if self.manner == "no failed" else ALL
        conditional = ConditionalWrite.NONE if self.manner == "no condition" else ConditionalWrite.SERVICE
        self.abilities = Abilities(
            proofs=proofs, key=key, charges=self.manner != "no charge", checks_then_writes=window,
            conditional=conditional,
        )
        if self.manner == "hints":
            self.abilities = {"proofs": ALL, "safe": True}
        if self.manner == "no dispatch":
            self.dispatch = None

    def prepare(self, request):
        if self.manner == "prepare refuses":
            raise PreparationRefusedError("Not A Word", "no such field", "canary-4711 free text")
        if self.manner == "prepare fails":
            raise RuntimeError("canary-4711 free text")
        if self.manner == "prepare returns nothing":
            return None
        if self.manner == "prepare pins a float":
            return Preparation(actual={"x": 0.5}, destination={})
        return Preparation(actual={"order": request.values["order"]}, destination={"port": self.port})

    def still_holds(self, request, preparation):
        if self.manner == "look fails":
            raise RuntimeError("canary-4711 free text")
        if self.manner == "looks at the service":
            http.client.HTTPConnection("127.0.0.1", preparation.destination["port"], timeout=5).connect()
            return None
        if self.manner == "look says words":
            return "canary-4711 free text"
        return None if self.prepare(request) == preparation else "order_changed"

    def dispatch(self, order):
        if self.manner == "not sent":
            raise NotDispatchedError("canary-4711 free text")
        if self.manner == "fails unsent":
            raise RuntimeError("canary-4711 free text")
        if self.manner == "two steps":
            self._sent(order)
            order.still_allowed()
        return self._sent(order)

    def _sent(self, order):
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=order.remaining_ms / 1000)
        body = json.dumps(dict(order.request.values))
        line.request("POST", "/refunds", body, {"Idempotency-Key": order.effect_id, "Connection": "close"})
        said = line.getresponse()
        said.read()
        line.close()
        if self.manner == "fails sent":
            raise RuntimeError("canary-4711 free text")
        if self.manner == "no answer":
            return {"proof": "succeeded"}
        charged = {
            "charges less": {"USD.cent": 120}, "charges below": {"USD.cent": -5}, "charges a float": {"USD.cent": 1.5},
            "charges true": {"USD.cent": True}, "charges nan": {"USD.cent": float("nan")},
            "charges text": {"USD.cent": "5"}, "charges 2**53": {"USD.cent": 2**53}, "charges nothing": {"USD.cent": 0},
        }.get(self.manner)
        reference = "canary-4711\\n" if self.manner == "a long word" else "r-1"
        return Answer(
            proof=PROOFS[said.status], source="canary-4711 free text", reference=reference, charged=charged
        )


class Looking(Shop):
    def inspect(self, look):
        if self.manner == "inspect fails":
            raise RuntimeError("canary-4711 free text")
        if self.manner == "inspect returns text":
            return "found"
        return Inspection(seen=Seen.FOUND, source="canary-4711 free text", reference="r-1")


def make(settings):
    if settings.get("manner") == "cannot be made":
        raise RuntimeError("canary-4711 free text")
    return Looking(settings)


def make_blind(settings):
    return Shop(settings)
'''

HTTP = 'http = { method = "POST", url = "http://127.0.0.1:@PORT@/refunds", once = "Idempotency-Key" }\n'
BODY = 'body = { order = "{order}", amount = "{amount}" }\n'
PROVES = 'proves = { succeeded = [201], failed = [409], no_effect = [400, 402, 422], key_kept = "24h" }'
TERMS = 'proves = ["succeeded", "failed", "no_effect"], charges = true, key_kept = "24h"'
NO_DIGEST = "0" * 64

_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An adapter that stands on the path: its name, the folder on the path, and the file of its code."""

    name: str
    site: Path
    file: Path

    @property
    def module(self) -> str:
        """The module that holds it."""
        return f"{self.name}.sending"


@contextmanager
def installed(folder: Path, *, factory: str = "make") -> Iterator[Installed]:
    """Install the adapter in `folder` and put that on the path for as long as the block runs."""
    name = f"shop_adapter_{next(_numbers)}"
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "sending.py").write_text(ADAPTER, encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    points = f"[permit_issuer.adapters]\n{name} = {name}.sending:{factory}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        try:
            yield Installed(name=name, site=folder, file=package / "sending.py")
        finally:
            for module in [module for module in sys.modules if module.split(".")[0] == name]:
                del sys.modules[module]


def python_table(name: str, port: int, *, digest: str, terms: str = TERMS, manner: str = "") -> str:
    """Return the line of a profile that declares the adapter."""
    settings = f'settings = {{ port = "{port}"' + (f', manner = "{manner}"' if manner else "") + " }"
    return f'python = {{ adapter = "{name}", digest = "{digest}", {settings}, {terms} }}'


def shown_digest(fault: SetupError) -> str:
    """Return the digest that a refusal tells the owner to write."""
    (found,) = re.findall(r'write digest = "([0-9a-f]{64})"', fault.message)
    return str(found)


def profile_changes(table: str) -> dict[str, str]:
    """Return the changes that let the adapter send the standard refund."""
    if HTTP + BODY + PROVES not in STANDARD_PROFILE:
        raise AssertionError("the standard profile sends its refund in another way")
    return {f"{HTTP}{BODY}{PROVES}": table}


def admitted_issuer(
    folder: Path,
    adapter: Installed,
    *,
    port: int,
    terms: str = TERMS,
    manner: str = "",
    further: str = "",
) -> Made:
    """Make the standard issuer whose refund is sent by the adapter, as its owner would: the refusal says the digest.

    `further` are lines of the operation's table beside it.
    """
    table = python_table(adapter.name, port, digest=NO_DIGEST, terms=terms, manner=manner)
    table = f"{table}\n{further}"
    with pytest.raises(SetupError) as refused:
        standard_issuer(folder / "unadmitted", port=port, changes=changes_at(table, port))
    admitted = table.replace(NO_DIGEST, shown_digest(refused.value))
    return standard_issuer(folder / "f0", port=port, changes=changes_at(admitted, port))


def changes_at(table: str, port: int) -> dict[str, str]:
    """Return the same changes, for a profile in which the port stands already."""
    return {old.replace("@PORT@", str(port)): new for old, new in profile_changes(table).items()}
