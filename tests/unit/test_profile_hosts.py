"""What an owner declares about a host that sends by itself: its deadline, an admission as wrapper, variables."""

import time
from pathlib import Path

import pytest

from issuer.clock import steady_s
from issuer.operations.contract import Proof
from issuer.operations.registry import Operation, build_operations
from issuer.profile import FindingCode, Profile, ProfileRefused, operation_digest, parse_profile
from tests.support.issuers import STANDARD_PROFILE

HOST = 'host = { deadline = "5m" }'
WRAPPER = 'wrapper = { because = "It sees every byte." }'


def read(host: str) -> Profile:
    text = STANDARD_PROFILE.replace("@UID@", "0").replace("@PORT@", "9").replace(HOST, f"host = {{ {host} }}")
    return parse_profile(text, where="profile.toml", registries=lambda _path: "")


def operation(host: str) -> Operation:
    return build_operations(read(host), folder=Path("/x"), credentials=lambda _name: "")["publish"]


@pytest.mark.spec("OPR-01", "OPR-04", "REC-07")
def test_only_an_admitted_wrapper_proves_anything_by_its_word() -> None:
    plain, wrapper = operation('deadline = "5m"'), operation(f'deadline = "5m", {WRAPPER}')
    assert (dict(plain.terms.answers), plain.terms.charged) == ({}, False)
    assert set(wrapper.terms.answers.values()) == {Proof.SUCCEEDED, Proof.FAILED, Proof.NO_EFFECT}
    assert wrapper.terms.charged
    assert plain.host is not None
    assert wrapper.host is not None
    assert (plain.host.is_wrapper, wrapper.host.is_wrapper) == (False, True)


@pytest.mark.spec("OPR-02", "EFF-02")
@pytest.mark.parametrize(
    "host",
    [f'deadline = "5m", {WRAPPER}', 'deadline = "5m", environment = ["NPM_TOKEN"]', 'deadline = "6m"'],
)
def test_whatever_is_declared_about_a_host_is_in_contract_and_implementation(host: str) -> None:
    before = operation('deadline = "5m"')
    assert operation(host).contract != before.contract
    assert operation(host).adapter.implementation != before.adapter.implementation
    assert operation_digest(read(host), "publish") == operation(host).contract


@pytest.mark.spec("OPR-01", "SEC-01")
@pytest.mark.parametrize(
    ("host", "code"),
    [
        ('deadline = "5m", environment = ["ISSUER_TOKEN"]', FindingCode.BAD_NAME),
        ('deadline = "5m", environment = ["PERMIT_CLAIM"]', FindingCode.BAD_NAME),
        ('deadline = "5m", environment = ["A=B"]', FindingCode.BAD_NAME),
        ('deadline = "5m", environment = [""]', FindingCode.BAD_NAME),
        ('deadline = "5m", wrapper = {}', FindingCode.MISSING_KEY),
        ('deadline = "5m", wrapper = true', FindingCode.WRONG_TYPE),
        ('deadline = "5m", wrapper = { because = "" }', FindingCode.OUT_OF_RANGE),
    ],
)
def test_an_admission_without_a_reason_and_names_that_are_ours_are_refused(
    host: str, code: FindingCode
) -> None:
    with pytest.raises(ProfileRefused) as refused:
        read(host)
    assert [finding.code for finding in refused.value.findings] == [code]


@pytest.mark.spec("ADM-07")
def test_the_clock_of_deadlines_goes_on_while_the_machine_is_suspended() -> None:
    """Linux tells in /proc/uptime how long ago the machine began, suspended time included."""
    uptime = Path("/proc/uptime")
    if not uptime.exists():
        pytest.skip("only Linux tells")
    assert abs(steady_s() - float(uptime.read_text().split()[0])) < 5
    first = steady_s()
    assert 0 <= steady_s() - first < 5
    assert time.clock_getres(time.CLOCK_BOOTTIME) < 0.1
