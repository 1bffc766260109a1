"""The example of the reference page: a profile of the smallest useful size, and three ways to get it wrong.

The page's generator really loads all of them, so neither the example nor a finding's words can grow stale.
"""

from typing import Final

__all__ = ["EXAMPLE", "EXAMPLE_REGISTRIES", "MISTAKES"]

EXAMPLE: Final = """\
format   = 1
name     = "bakery"
mode     = "ordinary"
timezone = "Europe/Vienna"

[audit]
sink.local = { type = "jsonl", path = "audit" }

[person]
maria = { roles = ["owner", "approver"], groups = ["office"] }

[actor]
order-bot = { answers_to = "maria", groups = ["bots"] }

[host]
till = { actors = ["order-bot"], subjects = ["maria"] }

[registry]
mill = { file = "mills.csv", key = "code", fields = ["account"] }

[class.order]
each     = { "EUR.cent" = 20_000 }
per_task = { permits = 5 }
per_root = { permits = 50 }
per_day  = { permits = 10, "EUR.cent" = 60_000 }
lifetime = "10m"

[class.notice]
each     = { notice = 1 }
per_task = { permits = 3 }
per_root = { permits = 30 }
lifetime = "1h"

[operation.order_flour]
class    = "order"
resource = { type = "Order", id = "{mill}/{reference}", recipients = ["{mill.account}"] }
payload.mill      = { registry = "mill", public = true }
payload.reference = { string = 20, public = true }
payload.cents     = { int = [1, 100_000] }
cost     = { "EUR.cent" = "{cents}" }
http     = { method = "POST", url = "https://mill.example/orders", bearer = "mill_token", once = "Order-Key" }
body     = { account = "{mill.account}", cents = "{cents}", reference = "{reference}" }
proves   = { succeeded = [201], no_effect = [400, 409], key_kept = "24h" }

[operation.post_notice]
class    = "notice"
resource = { type = "Notice", id = "notices/{day}" }
payload  = { day = { string = 10, public = true }, words = { string = 500 } }
cost     = { notice = 1 }
file     = { action = "create", root = "notices", path = "{day}.txt", content = "{words}" }
"""

EXAMPLE_REGISTRIES: Final = {"mills.csv": "code,account\nnorth,AT-100\nsouth,AT-200\n"}

MISTAKES: Final = (
    (
        "An automatic class without a bound, and a misspelt key",
        (("per_root = { permits = 50 }\n", ""), ('lifetime = "1h"', 'livetime = "1h"')),
    ),
    (
        "A template that names no field, and a cost that could be negative",
        (("{mill}/{reference}", "{mill}/{referense}"), ("int = [1, 100_000]", "int = [-1, 100_000]")),
    ),
    (
        "A number in quotes, and a sink that nothing waits for",
        (
            ("{ int = [1, 100_000] }", '{ string = "20" }'),
            ('path = "audit" }', 'path = "audit", required = false }'),
        ),
    ),
)
"""Title, and the replacements that turn the example into a bad profile."""
