"""A certificate authority for the tests, and the certificates it signs; all in PEM files of one
folder."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = timedelta(days=1)


class Authority:
    """Signs through an intermediate, as real authorities do: a certificate comes with its chain."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._root_key = ec.generate_private_key(ec.SECP256R1())
        self._root = _signed(f"{name} root", self._root_key, None, self._root_key, is_ca=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = _signed(name, self._key, self._root, self._root_key, is_ca=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._root))

    def issue(self, name: str, *, password: bytes | None = None) -> tuple[Path, Path]:
        """A certificate with its chain, and its key: for 127.0.0.1, or for the client `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(name, key, self._certificate, self._key)
        chain = self._folder / f"{name}.chain.pem"
        chain.write_bytes(_pem(certificate) + _pem(self._certificate))
        file = self._folder / f"{name}.key.pem"
        file.write_bytes(_key_pem(key, password))
        return chain, file

    def issue_in_one_file(self, name: str) -> Path:
        """In the format of Java's brokers."""
        chain, key = self.issue(name)
        both = self._folder / f"{name}.pem"
        both.write_bytes(key.read_bytes() + chain.read_bytes())
        return both


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    addresses: list[x509.GeneralName] = [x509.IPAddress(IPv4Address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LIFE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None) -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
