import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from issuer.operations.contract import Answer, NotDispatchedError, Proof, TargetUnreadableError
from issuer.operations.http_adapter import HttpAdapter
from issuer.operations.http_answer import ReceivedAnswer
from issuer.operations.http_read import HttpReader
from issuer.operations.templates import Template
from tests.support.declared import CANARY, secrets, send, settings
from tests.support.service import Service, answer, raw, response, shows


def certificate(*names: str) -> tuple[bytes, bytes]:
    """A fresh self-signed certificate for these names, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now = datetime.now(UTC)
    alternatives = [
        x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A service over TLS that is called bank.example, and its certificate."""
    public, private = certificate("bank.example")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(private + public)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with Service(tls=context) as service:
        yield service, public.decode()


def over_tls(service: Service, ca_pem: str | None, host: str = "bank.example") -> HttpAdapter:
    return HttpAdapter(
        settings(f"https://{host}:{service.port}", ca_pem=ca_pem),
        secrets,
        resolve=lambda _host, _port: ("127.0.0.1",),
    )


@pytest.mark.spec("EFF-02")
def test_the_name_is_verified_although_the_address_is_pinned(
    secure: tuple[Service, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service, public = secure
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    service.then(answer(201))
    assert send(over_tls(service, public)).proof is Proof.SUCCEEDED
    assert service.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert not (tmp_path / "keys").exists()


@pytest.mark.spec("REP-04", "EFF-02")
def test_a_failed_handshake_proves_that_nothing_was_sent(
    secure: tuple[Service, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service, public = secure
    trusted_by_environment = tmp_path / "environment.pem"
    trusted_by_environment.write_text(public)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted_by_environment))
    cases = [
        over_tls(service, public, host="other.example"),
        over_tls(service, certificate("bank.example")[0].decode()),
        over_tls(service, None),
    ]
    for number, adapter in enumerate(cases, 1):
        with pytest.raises(NotDispatchedError, match=r"^tls_failed$"):
            send(adapter)
        service.wait_for(closed=number)
    assert service.requests == ()


@pytest.mark.spec("REP-04")
def test_tls_towards_a_service_without_it_sends_no_request() -> None:
    with Service() as service:
        adapter = HttpAdapter(settings(f"https://127.0.0.1:{service.port}"), secrets)
        with pytest.raises(NotDispatchedError, match=r"^tls_failed$"):
            send(adapter, remaining_ms=500)
        assert service.requests == ()


def test_certificates_that_are_none_are_refused() -> None:
    for text in ("", "no certificate"):
        with pytest.raises(ValueError, match="ca_pem"):
            HttpAdapter(settings("https://bank.example", ca_pem=text), secrets)


@pytest.mark.spec("REP-05")
def test_an_answer_that_ends_with_the_connection_must_end_the_session_as_well(
    secure: tuple[Service, str],
) -> None:
    service, public = secure
    # Without a length the end of the connection ends the body, and anybody on the way can cause that.
    service.then(raw(response(201, {"content-length": ""}, b"{")), raw(response(201, body=b"{}")))
    adapter = over_tls(service, public)
    assert send(adapter) == Answer(proof=Proof.NOTHING, source="http:201:cut")
    assert send(adapter) == Answer(proof=Proof.SUCCEEDED, source="http:201")


@pytest.mark.spec("EFF-02", "EFF-06")
def test_a_read_is_verified_like_a_sending_and_the_environment_has_no_say(
    secure: tuple[Service, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service, public = secure
    trusted_by_environment = tmp_path / "environment.pem"
    trusted_by_environment.write_text(public)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted_by_environment))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))

    def read(host: str, ca_pem: str | None) -> ReceivedAnswer:
        url = Template.parse_url(f"https://{host}:{service.port}/x")
        return HttpReader(url, "bank_token", secrets, ca_pem=ca_pem).get("/x", ["127.0.0.1"])

    service.then(shows())
    assert read("bank.example", public).status == 200
    assert service.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    others = [
        ("other.example", public),
        ("bank.example", None),
        ("bank.example", certificate("bank.example")[0]),
    ]
    for number, (host, trusted) in enumerate(others, 2):
        with pytest.raises(TargetUnreadableError, match=r"^tls_failed$"):
            read(host, trusted.decode() if isinstance(trusted, bytes) else trusted)
        service.wait_for(closed=number)
    assert len(service.requests) == 1
    assert not (tmp_path / "keys").exists()
