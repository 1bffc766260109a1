"""What tests of bound members start from: one open issuer with permits that nobody has used yet.

The payment has a field of each exposure and a registry behind one of them; the page is a file that is replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from issuer import Issuer
from issuer.wire import Answer
from tests.fault.test_attacks import unguarded
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.revised import activated, rewritten
from tests.support.service import Service

PAYMENT: Final = """
[registry]
vendors = { file = "vendors.csv", key = "id", fields = ["iban", "email"] }
[operation.pay]
class = "refund"
resource = { type = "Payment", id = "{order}", recipients = ["{vendor.email}"] }
cost = { "USD.cent" = "{amount}" }
http = { method = "POST", url = "http://127.0.0.1:@PORT@/payments", once = "Idempotency-Key" }
body = { order = "{order}", amount = "{amount}", iban = "{vendor.iban}", card = "{card}" }
proves = { succeeded = [201], key_kept = "24h" }
[operation.pay.payload]
order = { string = 40, public = true }
amount = { int = [1, 1_000], public = true }
vendor = { registry = "vendors", public = true }
note = { string = 40 }
card = { string = 40, secret = true }
[operation.page]
class = "refund"
resource = { type = "Page", id = "{order}" }
payload = { order = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
file = { action = "replace", root = "pages", path = "{order}", content = "{order}" }
[operation.publish]"""
PAGES: Final = """
@id("pages")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Page);
@id("payments")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Payment);
"""
VENDORS: Final = "id,iban,email\nacme,DE01,pay@acme.example\nother,DE02,pay@other.example\n"
SAID: Final[Mapping[str, object]] = {
    "order": "o-1",
    "amount": 300,
    "vendor": "acme",
    "note": "for ana",
    "card": "4000-1",
}


@dataclass(kw_only=True)
class Stage:
    """One open issuer with a permit for a payment and one for a page; nothing of either was sent."""

    made: Made
    service: Service
    issuer: Issuer
    payment: str
    page: str

    @property
    def file(self) -> Path:
        return self.made.folder / "pages" / "o-1"

    def edited(self, old: str, new: str, file: str = "profile.toml") -> Answer:
        """Commit the payment after the owner changed a text of a file and activated that."""
        path = self.made.folder / file
        text = path.read_text("utf-8")
        assert text.count(old) >= 1
        rewritten(path, text.replace(old, new))
        activated(self.made.profile)
        return self.issuer.commit(self.payment)

    def restated(self, **changes: object) -> Answer:
        return self.issuer.commit(self.payment, payload={**SAID, **changes})

    def forged(self, column: str, value: object) -> Answer:
        """Commit the payment after somebody changed a column of its row."""
        with unguarded(self.made) as raw:
            raw.execute(f"UPDATE effects SET {column} = ? WHERE effect_id = ?", (value, self.payment))  # noqa: S608 - our own word
        return self.issuer.commit(self.payment)


def opened(folder: Path, service: Service) -> Made:
    pages = folder / "pages"
    pages.mkdir(parents=True)
    pages.chmod(0o700)
    (pages / "o-1").write_text("as it was", encoding="utf-8")
    (folder / "vendors.csv").write_text(VENDORS, encoding="utf-8")
    changes = {"[operation.publish]": PAYMENT.replace("@PORT@", str(service.port))}
    return standard_issuer(folder, port=service.port, policy=STANDARD_POLICY + PAGES, changes=changes)


def staged(made: Made, service: Service, issuer: Issuer) -> Stage:
    payment = permitted(issuer.request("pay", dict(SAID), task="t1", actor="agent-7"))
    page = permitted(issuer.request("page", {"order": "o-1"}, task="t1", actor="agent-7"))
    return Stage(made=made, service=service, issuer=issuer, payment=payment, page=page)
