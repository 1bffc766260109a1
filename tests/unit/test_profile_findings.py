"""Bad profiles, and what their owner is told: each row changes the good profile in one place.

A row is: what it is called, the text replaced, the replacement, the text where the finding must point (its
first character gives line and column), the dotted key, the code, and words of the sentence.
"""

import re

import pytest

from issuer.profile import FindingCode, ProfileRefused, parse_profile
from issuer.profile.findings import Finding
from issuer.profile.limits import FINDINGS_MAX, PROFILE_BYTES_MAX
from tests.unit.test_profile import CSV, FULL

Row = tuple[str, str, str, str, str, FindingCode, str]
C = FindingCode

PAY = 'url = "https://bank.example/pay/{way}"'
SHIP = "operation.ship"
FAR = '"otlp", url = "http://collector.example:4318/v1/traces"'

HEAD: list[Row] = [
    ("newer format", "format   = 1", "format = 2", "format = 2", "format", C.BAD_VALUE, "format 1 only"),
    ("format as text", "format   = 1", 'format = "1"', "format =", "format", C.WRONG_TYPE, "not a string"),
    ("format as true", "format   = 1", "format = true", "format =", "format", C.WRONG_TYPE, "not true"),
    ("format as float", "format   = 1", "format = 1.0", "format =", "format", C.WRONG_TYPE,
     "with a fraction"),
    ("no name", 'name     = "orchard"\n', "", "format", "name", C.MISSING_KEY, "`name` is missing"),
    ("name in capitals", '"orchard"', '"Orchard"', "name ", "name", C.BAD_NAME, "lower-case"),
    ("long name", '"orchard"', f'"{"o" * 65}"', "name ", "name", C.BAD_NAME, "1 to 64"),
    ("misspelt mode", '"strict"', '"strcit"', "mode ", "mode", C.BAD_VALUE, 'Did you mean "strict"?'),
    ("mode as list", '"strict"', '["strict"]', "mode ", "mode", C.WRONG_TYPE, "not a list"),
    ("misspelt zone", "Asia/Tokyo", "Asia/Tokio", "timezone", "timezone", C.UNKNOWN_NAME, '"Asia/Tokyo"?'),
    ("folder as zone", "Asia/Tokyo", "Asia", "timezone", "timezone", C.UNKNOWN_NAME, "IANA"),
    ("machine's zone", "Asia/Tokyo", "localtime", "timezone", "timezone", C.UNKNOWN_NAME, "IANA"),
    ("path as zone", "Asia/Tokyo", "../UTC", "timezone", "timezone", C.UNKNOWN_NAME, "IANA"),
    ("date as zone", '"Asia/Tokyo"', "2026-12-01", "timezone", "timezone", C.WRONG_TYPE, "a date or time"),
    ("unknown section", "[actor]", "[actors]", "actors]", "actors", C.UNKNOWN_KEY, 'Did you mean "actor"?'),
    ("no sink required", "required = true", "required = false", "sink.disk", "audit.sink",
     C.NO_REQUIRED_SINK, ""),
    ("required as text", "required = true", 'required = "true"', 'required = "', "audit.sink.disk.required",
     C.WRONG_TYPE, "true or false"),
    ("required as one", "required = true", "required = 1", "required = 1", "audit.sink.disk.required",
     C.WRONG_TYPE, "not a whole number"),
    ("unknown sink type", '"otlp"', '"oltp"', 'type = "oltp"', "audit.sink.far.type", C.BAD_VALUE,
     '"otlp"?'),
    ("segment without unit", '"trail"', '"trail", segment = "64"', "segment", "audit.sink.disk.segment",
     C.BAD_VALUE, "MiB or GiB"),
    ("segment as number", '"trail"', '"trail", segment = 64', "segment", "audit.sink.disk.segment",
     C.WRONG_TYPE, "a size"),
    ("segment too large", '"trail"', '"trail", segment = "65 GiB"', "segment", "audit.sink.disk.segment",
     C.OUT_OF_RANGE, "between"),
    ("segment of a collector", '"otlp"', '"otlp", segment = "1 MiB"', "segment", "audit.sink.far.segment",
     C.CONFLICT, "no `segment`"),
    ("jsonl without path", ', path = "trail"', "", "disk", "audit.sink.disk.path", C.MISSING_KEY,
     "needs `path`"),
    ("otlp with path", 'url = "http://coll', 'path = "x", url = "http://coll', 'path = "x"',
     "audit.sink.far.path", C.CONFLICT, "no `path`"),
    ("otlp with digest", 'url = "http://coll', f'digest = "{"0" * 64}", url = "http://coll', "digest",
     "audit.sink.far.digest", C.CONFLICT, "no `digest`"),
    ("a bearer anybody can read", 'url = "http://coll', 'bearer = "t", url = "http://coll', 'url = "http',
     "audit.sink.far.url", C.BAD_DESTINATION, "over https"),
    ("jsonl with bearer", 'path = "trail"', 'path = "trail", bearer = "t"', 'bearer = "t"',
     "audit.sink.disk.bearer", C.CONFLICT, "no `bearer`"),
    ("python without plugin", FAR, f'"python", digest = "{"0" * 64}"', "far", "audit.sink.far.plugin",
     C.MISSING_KEY, "needs `plugin`"),
    ("python without digest", FAR, '"python", plugin = "x"', "far", "audit.sink.far.digest",
     C.MISSING_KEY, "needs `digest`"),
    ("python with url", '"otlp", url', f'"python", plugin = "x", digest = "{"0" * 64}", url', "url",
     "audit.sink.far.url", C.CONFLICT, "no `url`"),
    ("sink url with user", "http://coll", "http://me@coll", 'url = "http://me', "audit.sink.far.url",
     C.BAD_DESTINATION, "without user"),
    ("no unit in every", '"2h"', '"2"', "every", "audit.checkpoint.every", C.BAD_VALUE,
     "whole number and one of"),
]  # fmt: skip

PEOPLE: list[Row] = [
    ("misspelt role", '"owner"', '"ownr"', '"ownr"', "person.kenji.roles[0]", C.BAD_VALUE, '"owner"?'),
    ("role twice", '"operator"]', '"owner"]', "roles", "person.kenji.roles", C.DUPLICATE_VALUE,
     "owner stands"),
    ("roles as text", '["approver", "reviewer", "host"]', '"approver"', 'roles = "app', "person.yuki.roles",
     C.WRONG_TYPE, "must be a list, not a string"),
    ("unknown person key", 'key = "people', 'kye = "people', "kye", "person.kenji.kye", C.UNKNOWN_KEY,
     '"key"?'),
    ("suspended in the file", "guest = {}", "guest = { suspended = true }", "suspended",
     "person.guest.suspended", C.UNKNOWN_KEY, "no key `suspended`"),
    ("uid with a zero in front", "uid:1000", "uid:01000", "login", "person.kenji.login", C.BAD_VALUE,
     "uid:N"),
    ("uid above the last", "uid:1000", "uid:4294967295", "login", "person.kenji.login", C.BAD_VALUE,
     "uid:N"),
    ("uid as number", '"uid:1000"', "1000", "login", "person.kenji.login", C.WRONG_TYPE,
     "must be a string"),
    ("one uid twice", "uid:1200", "uid:1000", 'login = "uid:1000" }', "host.desk.login", C.DUPLICATE_LOGIN,
     "uid:1000 already logs in person.kenji"),
    ("person is no table", "guest = {}", "guest = 5", "guest = 5", "person.guest", C.WRONG_TYPE,
     "must be a table"),
    ("name of a person", "guest = {}", "Guest = {}", "Guest", "person.Guest", C.BAD_NAME, "lower-case"),
    ("actor of nobody", 'answers_to = "kenji"', 'answers_to = "kenjy"', "answers_to",
     "actor.picker.answers_to", C.UNKNOWN_NAME, 'no [person] entry "kenjy". Did you mean "kenji"?'),
    ("host of no actor", 'desk = { actors = ["picker"]', 'desk = { actors = ["pickr"]', '"pickr"',
     "host.desk.actors[0]", C.UNKNOWN_NAME, 'Did you mean "picker"?'),
    ("host of nobody", '"yuki"], login', '"yuko"], login', '"yuko"', "host.desk.subjects[1]",
     C.UNKNOWN_NAME, 'Did you mean "yuki"?'),
    ("host without subjects", 'subjects = ["guest"], ', "", "shed", "host.shed.subjects", C.MISSING_KEY,
     "missing"),
    ("key among the fields", '["account", "town"]', '["account", "code"]', '"code"] }',
     "registry.grower.fields[1]", C.DUPLICATE_VALUE, "other columns"),
]  # fmt: skip

CLASSES: list[Row] = [
    ("no each", 'each     = { "JPY.yen" = 9_000, fee = 0 }\nper', "per", "payment]", "class.payment.each",
     C.MISSING_BOUND, "what one effect may cost"),
    ("no per_task", "per_task = { permits = 5 }\n", "", "payment]", "class.payment.per_task",
     C.MISSING_BOUND, "how many permits a task gets"),
    ("no per_root", "per_root = { permits = 50 }\n", "", "payment]", "class.payment.per_root",
     C.MISSING_BOUND, "how many permits a root task gets"),
    ("no lifetime", 'lifetime = "10m"\n', "", "payment]", "class.payment.lifetime", C.MISSING_BOUND,
     "how long"),
    ("automatic by default", "automatic = false\n", "", "removal]", "class.removal.each", C.MISSING_BOUND,
     "each"),
    ("long lifetime", '"7d"', '"169h"', 'lifetime  = "169h"', "class.removal.lifetime", C.OUT_OF_RANGE,
     "1s and 7d"),
    ("lifetime of zero", '"7d"', '"0s"', 'lifetime  = "0s"', "class.removal.lifetime", C.BAD_VALUE,
     "duration"),
    ("lifetime as number", '"7d"', "7", "lifetime  = 7", "class.removal.lifetime", C.WRONG_TYPE,
     "a duration"),
    ("no permits", "permits = 5 }", "permits = 0 }", "permits = 0", "class.payment.per_task.permits",
     C.OUT_OF_RANGE, "between 1 and"),
    ("money per task", "permits = 5 }", 'permits = 5, "JPY.yen" = 1 }', '"JPY.yen" = 1',
     'class.payment.per_task."JPY.yen"', C.UNKNOWN_KEY, "no key `JPY.yen`"),
    ("negative amount", "9_000", "-1", '"JPY.yen" = -1', 'class.payment.each."JPY.yen"', C.OUT_OF_RANGE,
     "0 and"),
    ("amount too large", "9_000", "9007199254740992", '"JPY.yen" = 900', 'class.payment.each."JPY.yen"',
     C.OUT_OF_RANGE, "9007199254740991"),
    ("amount as float", "9_000", "9e3", '"JPY.yen" = 9e3', 'class.payment.each."JPY.yen"', C.WRONG_TYPE,
     "fraction"),
    ("amount as true", "9_000", "true", '"JPY.yen" = true', 'class.payment.each."JPY.yen"', C.WRONG_TYPE,
     "not true"),
    ("unit with a blank", "fee = 0 }\nper", '"a fee" = 0 }\nper', '"a fee"', 'class.payment.each."a fee"',
     C.BAD_NAME, "joined by dots"),
    ("unit named permits", "fee = 0 }\nper", "permits = 0 }\nper", "permits = 0",
     "class.payment.each.permits", C.BAD_NAME, "cannot be a unit"),
    ("task above root", "permits = 5 }", "permits = 51 }", "permits = 51", "class.payment.per_task.permits",
     C.IMPOSSIBLE_BOUND, "(51) than its root task (50)"),
    ("each above the day", "40_000", "8_999", '"JPY.yen" = 9_000', 'class.payment.each."JPY.yen"',
     C.IMPOSSIBLE_BOUND, "more than the whole day's 8999"),
    ("day of another unit", '10, "JPY.yen"', '10, "JPY.yens"', '"JPY.yens"',
     'class.payment.per_day."JPY.yens"', C.IMPOSSIBLE_BOUND, 'Did you mean "JPY.yen"?'),
    ("no permits a day", "permits = 10", "permits = 0", "permits = 0", "class.payment.per_day.permits",
     C.IMPOSSIBLE_BOUND, "automatic = false"),
]  # fmt: skip

OPERATIONS: list[Row] = [
    ("unknown class", 'class    = "payment"', 'class    = "paymnt"', 'class    = "paymnt"',
     "operation.pay.class", C.UNKNOWN_NAME, 'Did you mean "payment"?'),
    ("misspelt key", 'class    = "payment"', 'clas = "payment"', "pay]", "operation.pay.class",
     C.MISSING_KEY, "`class` is missing"),
    ("version zero", "version  = 3", "version = 0", "version = 0", "operation.pay.version", C.OUT_OF_RANGE,
     ""),
    ("small type", '"Invoice"', '"invoice"', 'type = "inv', "operation.pay.resource.type", C.BAD_NAME,
     "capital"),
    ("own type", '"Invoice"', '"Person"', 'type = "Per', "operation.pay.resource.type", C.BAD_NAME,
     "schema uses"),
    ("field name", "payload.urgent", "payload.isUrgent", "isUrgent", "operation.pay.payload.isUrgent",
     C.BAD_NAME, "1 to 40"),
    ("field named effect_id", "payload.urgent", "payload.effect_id", "effect_id = {",
     "operation.pay.payload.effect_id", C.BAD_NAME, "another name"),
    ("field without kind", "{ bool = true }", "{}", "urgent", "operation.pay.payload.urgent",
     C.NOT_EXACTLY_ONE, "this one has none"),
    ("field with two kinds", "{ bool = true }", "{ bool = true, string = 1 }", "urgent",
     "operation.pay.payload.urgent", C.NOT_EXACTLY_ONE, "`string` and `bool`"),
    ("bool = false", "{ bool = true }", "{ bool = false }", "bool = false",
     "operation.pay.payload.urgent.bool", C.WRONG_TYPE, "must be true"),
    ("public and secret", "string = 8, secret", "string = 8, public = true, secret",
     "secret = true }\npayload.way", "operation.pay.payload.pin.secret", C.CONFLICT, "public and secret"),
    ("string of zero", "string = 40", "string = 0", "string = 0", "operation.pay.payload.number.string",
     C.OUT_OF_RANGE, "between 1 and 65536"),
    ("string too long", "string = 65_536", "string = 65_537", "string = 65_537",
     "operation.note.payload.words.string", C.OUT_OF_RANGE, "between 1 and 65536"),
    ("range upside down", "[-5, 900]", "[900, -5]", "int = [900", "operation.remove.payload.tree.int",
     C.OUT_OF_RANGE, "900 is above"),
    ("range of one", "[-5, 900]", "[900]", "int = [900", "operation.remove.payload.tree.int", C.WRONG_TYPE,
     "list of 1"),
    ("range out of range", "[-5, 900]", "[-5, 9007199254740992]", "int = [-5, 9007",
     "operation.remove.payload.tree.int", C.OUT_OF_RANGE, "between -9007199254740991"),
    ("nothing to choose", '["bank", "post"]', "[]", "one_of", "operation.pay.payload.way.one_of",
     C.BAD_VALUE, "at least"),
    ("choice twice", '["bank", "post"]', '["bank", "bank"]', "one_of", "operation.pay.payload.way.one_of",
     C.DUPLICATE_VALUE, "bank stands"),
    ("unknown registry", 'registry = "grower"', 'registry = "growers"', 'registry = "growers"',
     "operation.pay.payload.grower.registry", C.UNKNOWN_NAME, 'Did you mean "grower"?'),
    ("no cost", "{ crate = 2 }", "{}", "cost     = {}", "operation.ship.cost", C.UNBOUNDED_COST,
     "at least one unit"),
    ("cost as text", "{ crate = 2 }", '{ crate = "2" }', 'crate = "2"', "operation.ship.cost.crate",
     C.WRONG_TYPE, "whole-number field"),
    ("cost as float", "{ crate = 2 }", "{ crate = 2.5 }", "crate = 2.5", "operation.ship.cost.crate",
     C.WRONG_TYPE, "with a fraction"),
    ("negative cost", "{ crate = 2 }", "{ crate = -2 }", "crate = -2", "operation.ship.cost.crate",
     C.OUT_OF_RANGE, ""),
    ("cost of a field that could be negative", "{ tree = 1 }", '{ tree = "{tree}" }', 'tree = "{tree}"',
     "operation.remove.cost.tree", C.UNBOUNDED_COST, "begins at -5"),
    ("cost of a text", '"{yen}", fee = 0', '"{number}", fee = 0', '"JPY.yen" = "{number}"',
     'operation.pay.cost."JPY.yen"', C.UNBOUNDED_COST, "not a whole-number field"),
    ("cost of no field", '"{yen}", fee = 0', '"{yens}", fee = 0', '"JPY.yen" = "{yens}"',
     'operation.pay.cost."JPY.yen"', C.UNKNOWN_PLACEHOLDER, 'Did you mean "yen"?'),
    ("cost of a secret", "payload.yen    = { ", "payload.yen = { secret = true, ", '"JPY.yen" = "{yen}"',
     'operation.pay.cost."JPY.yen"', C.SECRET_EXPOSED, "shown to policies"),
    ("unit without a bound", '"{yen}", fee = 0', '"{yen}", fees = 0', "fees = 0", "operation.pay.cost.fees",
     C.MISSING_BOUND, 'Did you mean "fee"?'),
    ("dearer than each", '"{yen}", fee = 0', '"{yen}", fee = 1', "fee = 1", "operation.pay.cost.fee",
     C.IMPOSSIBLE_BOUND, "least cost is 1"),
    ("range above each", "[1, 500_000]", "[9_001, 500_000]", '"JPY.yen" = "{yen}"',
     'operation.pay.cost."JPY.yen"', C.IMPOSSIBLE_BOUND, "least cost is 9001"),
    ("one attribute, two types", 'type = "Crate", id = "crate" }\npayload  = {}',
     'type = "Tree", id = "crate" }\npayload  = { tree = { bool = true } }', "tree = { bool",
     "operation.ship.payload.tree", C.CONFLICT, "is bool here and int in"),
    ("known and said", 'held = "bool"', 'tree = "int"', 'tree = "int"',
     "operation.remove.before.facts.tree", C.CONFLICT, "different names"),
]  # fmt: skip

ADAPTERS: list[Row] = [
    ("no adapter", 'host     = { deadline = "5m" }\n', "", "ship]", SHIP, C.NOT_EXACTLY_ONE,
     "this one has none"),
    ("two adapters", 'host     = { deadline = "5m" }\n',
     'host = { deadline = "5m" }\nfile = { action = "delete", root = "r", path = "p" }\n', "ship]", SHIP,
     C.NOT_EXACTLY_ONE, "`host` and `file`"),
    ("host with body", 'host     = { deadline = "5m" }', 'host = { deadline = "5m" }\nbody = {}',
     "body = {}", "operation.ship.body", C.CONFLICT, "belongs to `http`"),
    ("host with proves", 'host     = { deadline = "5m" }', 'host = { deadline = "5m" }\nproves = {}',
     "proves = {}", "operation.ship.proves", C.CONFLICT, "belongs to `http`"),
    ("host commits", 'host     = { deadline = "5m" }',
     'host = { deadline = "5m" }\nafter_approval = "commit"', 'after_approval = "commit"\n\n',
     "operation.ship.after_approval", C.CONFLICT, "cannot commit"),
    ("reading is no effect", '"POST"', '"GET"', 'method = "GET"', "operation.pay.http.method", C.BAD_VALUE,
     '"POST"'),
    ("host of the URL is said", PAY, 'url = "https://{way}.example/pay/"', 'url = "https://{way}',
     "operation.pay.http.url", C.BAD_DESTINATION, "placeholders behind that only"),
    ("host of the URL goes on", PAY, 'url = "https://bank.example{way}"',
     'url = "https://bank.example{way}', "operation.pay.http.url", C.BAD_DESTINATION,
     "placeholders behind that only"),
    ("plain http", PAY, 'url = "http://bank.example/{way}"', 'url = "http://bank', "operation.pay.http.url",
     C.BAD_DESTINATION, "this machine only"),
    ("user in the URL", PAY, 'url = "https://me:x@bank.example/{way}"', 'url = "https://me',
     "operation.pay.http.url", C.BAD_DESTINATION, ""),
    ("port of the URL", PAY, 'url = "https://bank.example:65536/{way}"', 'url = "https://bank.example:6',
     "operation.pay.http.url", C.BAD_DESTINATION, "between 1 and 65535"),
    ("fragment of the URL", PAY, 'url = "https://bank.example/{way}#x"',
     'url = "https://bank.example/{way}#', "operation.pay.http.url", C.BAD_DESTINATION, "fragment"),
    ("key in authorization", '"Pay-Key"', '"Authorization"', "once", "operation.pay.http.once", C.BAD_NAME,
     "its own"),
    ("key in no header", '"Pay-Key"', '"Pay Key"', "once", "operation.pay.http.once", C.BAD_NAME,
     "HTTP header"),
    ("key_kept without key", ', once = "Pay-Key"', "", "key_kept", "operation.pay.proves.key_kept",
     C.CONFLICT, "http.once"),
    ("status proves two things", "failed = [500]", "failed = [422]", "422], key",
     "operation.pay.proves.no_effect[1]", C.CONFLICT, "already proves `failed`"),
    ("status out of range", "failed = [500]", "failed = [199]", "199]", "operation.pay.proves.failed[0]",
     C.OUT_OF_RANGE, "200 and 599"),
    ("tag without a read", "etag = true", "etag = false", "if_match", "operation.remove.http.if_match",
     C.CONFLICT, "`before` reads"),
    ("fact of no type", 'held = "bool"', 'held = "boolean"', "held", "operation.remove.before.facts.held",
     C.BAD_VALUE, 'Did you mean "bool"?'),
    ("create without content", ', content = "{words}\\n"', "", "file     =", "operation.note.file.content",
     C.MISSING_KEY, "needs `content`"),
    ("delete with content", 'action = "replace"', 'action = "delete"', "content",
     "operation.note.file.content", C.CONFLICT, "writes no `content`"),
    ("path out of the root", "days/{day}.txt", "days/../../{day}", 'path = "days',
     "operation.note.file.path", C.BAD_VALUE, "no `..`"),
    ("path from the top", "days/{day}.txt", "/etc/{day}", 'path = "/etc', "operation.note.file.path",
     C.BAD_VALUE, "relative"),
    ("pointer without slash", '"/gone"', '"gone"', 'found = "gone"', "operation.remove.inspect.found",
     C.BAD_VALUE, "6901"),
    ("absent without reason", ', because = "the bank refuses keys older than ten minutes"', "",
     "absent = { after", "operation.pay.inspect.absent", C.BAD_VALUE, "both keys"),
    ("absent sometimes", 'absent = "never"', 'absent = "later"', 'absent = "later"',
     "operation.remove.inspect.absent", C.BAD_VALUE, '"never" or'),
    ("after approval, what?", 'after_approval = "commit"', 'after_approval = "send"', "after_approval",
     "operation.pay.after_approval", C.BAD_VALUE, '"commit"'),
]  # fmt: skip

TEMPLATES: list[Row] = [
    ("no such field", "{grower}/{number}", "{grower}/{numbr}", 'id = "{grower}',
     "operation.pay.resource.id", C.UNKNOWN_PLACEHOLDER,
     '{numbr} names no payload field. Did you mean "number"?'),
    ("no such column", '["{grower.account}"]', '["{grower.acount}"]', '"{grower.acount}"',
     "operation.pay.resource.recipients[0]", C.UNKNOWN_PLACEHOLDER, 'Did you mean "account"?'),
    ("undeclared column", '["{grower.account}"]', '["{grower.remark}"]', '"{grower.remark}"',
     "operation.pay.resource.recipients[0]", C.UNKNOWN_PLACEHOLDER, "declares no field `remark`"),
    ("column of a text", '["{grower.account}"]', '["{number.account}"]', '"{number.account}"',
     "operation.pay.resource.recipients[0]", C.UNKNOWN_PLACEHOLDER, "names no registry"),
    ("effect id in the resource", "{grower}/{number}", "{effect_id}", 'id = "{effect_id}',
     "operation.pay.resource.id", C.UNKNOWN_PLACEHOLDER, "stands only in"),
    ("effect id in what is read before", 'https://trees.example/{tree}", bearer',
     'https://trees.example/{effect_id}", bearer', 'url = "https://trees.example/{effect_id}',
     "operation.remove.before.url", C.UNKNOWN_PLACEHOLDER, "stands only in"),
    ("secret in the resource", "{grower}/{number}", "{pin}", 'id = "{pin}', "operation.pay.resource.id",
     C.SECRET_EXPOSED, "{pin} is secret"),
    ("secret recipient", '["{grower.account}"]', '["{pin}"]', '"{pin}"]',
     "operation.pay.resource.recipients[0]", C.SECRET_EXPOSED, "approvers"),
    ("secret in the URL", "/pay/{way}", "/pay/{pin}", 'url = "https://bank.example/pay/{pin}',
     "operation.pay.http.url", C.SECRET_EXPOSED, "{pin} is secret"),
    ("secret in the path", "days/{day}.txt", "days/{words}", 'path = "days', "operation.note.file.path",
     C.SECRET_EXPOSED, "{words} is secret"),
    ("brace alone", "{grower}/{number}", "{grower}/{number", 'id = "{grower}', "operation.pay.resource.id",
     C.BAD_TEMPLATE, "stands alone"),
    ("no expression", "{grower}/{number}", "{grower}/{number!r}", 'id = "{grower}',
     "operation.pay.resource.id", C.BAD_TEMPLATE, ""),
    ("empty identity", "{grower}/{number}", "", 'id = ""', "operation.pay.resource.id", C.OUT_OF_RANGE,
     "1 to 4096"),
    ("NUL in a text", "{{as is}}", "as\\u0000is", "note = ", "operation.pay.body.note", C.CONTROL_CHARACTER,
     "control"),
    ("hidden line in a path", "days/{day}.txt", "days/\\u0085{day}", 'path = "days',
     "operation.note.file.path", C.CONTROL_CHARACTER, "control"),
]  # fmt: skip

NOTICES: list[Row] = [
    ("nobody is told", '"mail-kenji", "desk"]', '"mail-kenij", "desk"]', '"mail-kenij"', "operation.pay.notify[0]",
     C.UNKNOWN_NAME, 'no [notify] entry "mail-kenij". Did you mean "mail-kenji"?'),
    ("two ways to tell", 'spool = "told"', 'spool = "told"\ncommand = ["/bin/true"]', "desk]", "notify.desk",
     C.NOT_EXACTLY_ONE, "exactly one of `command` and `spool`"),
    ("no way to tell", 'spool = "told"\n', "", "desk]", "notify.desk", C.NOT_EXACTLY_ONE, "exactly one"),
    ("a command by its name", '"/usr/bin/mail-kenji"', '"mail-kenji"', '"mail-kenji", "--',
     "notify.mail-kenji.command[0]", C.BAD_VALUE, "full path"),
    ("a command for a shell", '["/usr/bin/mail-kenji", "--urgent"]', '"mail kenji"', "command",
     "notify.mail-kenji.command", C.WRONG_TYPE, "must be a list"),
    ("an empty command", '["/usr/bin/mail-kenji", "--urgent"]', "[]", "command",
     "notify.mail-kenji.command", C.OUT_OF_RANGE, "32 at most"),
    ("a long command", '"--urgent"', ", ".join(["'-v'"] * 32), "command",
     "notify.mail-kenji.command", C.OUT_OF_RANGE, "32 at most"),
    ("told of nothing", 'on      = ["awaiting_approval", "outcome_unknown"]', "on = []", "on = []",
     "notify.mail-kenji.on", C.BAD_VALUE, "at least one"),
    ("told of what never is", '"sink_down"', '"sink_dwon"', '"sink_dwon"', "notify.desk.on[2]", C.BAD_VALUE,
     '"sink_down"?'),
    ("a spool above", '"told"', '"../told"', "spool", "notify.desk.spool", C.BAD_VALUE, "folder of its own"),
    ("a spool that winds", '"told"', '"/var/../etc"', "spool", "notify.desk.spool", C.BAD_VALUE, "absolute"),
    ("a spool among the keys", '"told"', '"keys/told"', "spool", "notify.desk.spool", C.BAD_VALUE,
     "folder of its own"),
    ("too many to tell", "[notify.desk]",
     "\n".join(f'[notify.x{n}]\nspool = "x{n}"\non = ["frozen"]' for n in range(15)) + "\n[notify.desk]",
     "notify.mail", "notify", C.TOO_LARGE, "At most 16"),
]  # fmt: skip

SYNTAX: list[Row] = [
    ("key twice", 'mode     = "strict"', 'mode = "strict"\nmode = "ordinary"', 'mode = "ordinary"', "mode",
     C.DUPLICATE_KEY, "already given on line 3"),
    ("table twice", "[host]", "[actor]", "actor]\ndesk", "actor", C.DUPLICATE_KEY,
     "already given on line 16"),
    ("inline key twice", "string = 40, public", "string = 40, string = 41, public", "string = 41",
     "operation.pay.payload.number.string", C.DUPLICATE_KEY, "already given on line"),
    ("key opened twice", "payload  = {}", "payload  = {}\npayload.x = { bool = true }", "payload.x = ",
     "operation.ship.payload", C.DUPLICATE_KEY, "TOML allows"),
    ("no value", 'mode     = "strict"', "mode =", "\ntimezone", "", C.SYNTAX, "Invalid value"),
    ("open string", '"orchard"', '"orchard', "\nmode", "", C.SYNTAX, "not TOML"),
    ("deep list", "guest = {}", f"guest = {'[' * 11}[#\n{'[' * 5_000}", "[#", "", C.TOO_DEEP,
     "deeper than 12"),
    ("deep key", "guest = {}", ".".join("abcdefghijklmnop") + " = 1", "m.n.o.p", "", C.TOO_DEEP,
     "deeper than 12"),
]  # fmt: skip

ROWS = [*HEAD, *PEOPLE, *CLASSES, *OPERATIONS, *ADAPTERS, *TEMPLATES, *NOTICES, *SYNTAX]


def nearest_place(text: str, words: str, change: int) -> int:
    """The occurrence of `words` nearest to where the text was changed."""
    places = [match.start() for match in re.finditer(re.escape(words), text)]
    return min(places, key=lambda place: abs(place - change))


def findings_of(text: str, files: dict[str, str] | None = None) -> tuple[Finding, ...]:
    with pytest.raises(ProfileRefused) as caught:
        parse_profile(text, where="profile.toml", registries=(files or CSV).__getitem__)
    return caught.value.findings


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.spec("OPR-01", "POL-03", "POL-08", "EFF-04", "EFF-10")
def test_a_mistake_is_named_with_its_place_key_code_and_one_sentence(row: Row) -> None:
    _, old, new, at, key, code, words = row
    assert FULL.count(old) == 1, "a row replaces exactly one place"
    text = FULL.replace(old, new)
    start = nearest_place(text, at, FULL.index(old))
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    match = [finding for finding in findings_of(text) if finding.code is code and finding.key == key]
    assert [(finding.where, finding.line, finding.column) for finding in match] == [
        ("profile.toml", line, column)
    ]
    assert words in match[0].message


CASCADES = {
    "unknown section": "its entries are missing where they are named",
    "name of a person": "the person is missing where it is named",
    "automatic by default": "all bounds are missing, in class and operations",
    "misspelt key": "the misspelt key is unknown and the right one missing",
}
"""Mistakes that are more than one finding, and why."""


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] not in CASCADES], ids=lambda row: row[0])
def test_a_single_mistake_gives_a_single_finding(row: Row) -> None:
    assert len(findings_of(FULL.replace(row[1], row[2]))) == 1


def test_all_findings_come_at_once_in_the_order_of_the_file() -> None:
    text = FULL
    pointer = next(row for row in ADAPTERS if row[0] == "pointer without slash")
    for _, old, new, *_rest in (HEAD[5], PEOPLE[0], CLASSES[1], OPERATIONS[0], pointer, TEMPLATES[-1]):
        text = text.replace(old, new)
    findings = findings_of(text)
    assert [finding.key for finding in findings] == [
        "name", "person.kenji.roles[0]", "class.payment.per_task", "operation.pay.class",
        "operation.remove.inspect.found", "operation.note.file.path",
    ]  # fmt: skip
    assert sorted(findings, key=lambda finding: (finding.line, finding.column)) == list(findings)


def test_an_entry_that_is_not_well_formed_is_not_called_unknown_as_well() -> None:
    findings = findings_of(FULL.replace('roles = ["owner", "operator"]', "roles = 5"))
    assert [finding.key for finding in findings] == ["person.kenji.roles"]


def test_a_finding_reads_as_one_line_that_an_editor_can_follow() -> None:
    (finding,) = findings_of(FULL.replace('"strict"', '"strcit"'))
    assert str(finding) == (
        'profile.toml:3:1: mode: \'strcit\' is not one of "strict", "ordinary". '
        'Did you mean "strict"? [bad_value]'
    )


def test_line_ends_of_either_kind_give_the_same_places() -> None:
    text = FULL.replace('class    = "payment"', 'class = "paymnt"')
    assert findings_of(text.replace("\n", "\r\n")) == findings_of(text)


def test_a_finding_shows_no_raw_control_character_of_a_key() -> None:
    (finding, *_) = findings_of(FULL.replace("guest = {}", '"a\\u001bb" = {}'))
    assert str(finding).isprintable()


def test_findings_are_bounded_and_say_how_many_are_left_out() -> None:
    many = "\n".join(f"q{number} = 1" for number in range(FINDINGS_MAX + 7))
    findings = findings_of(FULL.replace('name     = "orchard"', f'name = "orchard"\n{many}'))
    assert len(findings) == FINDINGS_MAX + 1
    assert findings[-1].code is C.MORE_FINDINGS
    assert findings[-1].message.startswith("7 more")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", C.MISSING_KEY),
        ("# nothing\n", C.MISSING_KEY),
        ("a = " + "1" * 5_000, C.SYNTAX),
        ("a = 2026-02-30\n", C.SYNTAX),
        ("a = " + "[" * 200_000, C.TOO_DEEP),
        ("a = " + "{a=" * 60_000, C.TOO_DEEP),
        ("[" + "a." * 100_000 + "a]", C.TOO_DEEP),
        ("#" * (PROFILE_BYTES_MAX + 1), C.TOO_LARGE),
        ("é" * (PROFILE_BYTES_MAX // 2 + 1), C.TOO_LARGE),
        ("a\x00 = 1", C.SYNTAX),
        ("a = '\ud800'", C.MISSING_KEY),
        ("operation = [1]\nperson = 'x'\nclass = 5\naudit = []\n", C.WRONG_TYPE),
        ("[[operation]]\n[[operation]]\n", C.WRONG_TYPE),
    ],
)
def test_hostile_texts_end_as_findings(text: str, code: FindingCode) -> None:
    assert code in {finding.code for finding in findings_of(text)}


def test_a_table_with_too_many_entries_is_refused() -> None:
    people = "\n".join(f"p{number} = {{}}" for number in range(1_000))
    codes = {finding.code for finding in findings_of(FULL.replace("guest = {}", f"guest = {{}}\n{people}"))}
    assert C.TOO_LARGE in codes


def test_a_refusal_without_the_mistake_is_no_refusal() -> None:
    parse_profile(FULL, where="profile.toml", registries=CSV.__getitem__)
