"""A certificate for the time of one run: made by the side that listens, for nobody else to sign.

Its name says nothing. Whom it belongs to is shown by the challenge, which covers its fingerprint (`greeting`).
`cryptography` comes with MLflow.
"""

import hashlib
import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from scalebook.training.ps.memory.region import anonymous_file


class Serving(NamedTuple):
    """A context for who listens, and the SHA-256 of its certificate."""

    context: ssl.SSLContext
    fingerprint: bytes


def serving() -> Serving:
    """TLS 1.3 with a new key, which never lies on a disk."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "scalebook")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=365))
    certificate = builder.sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    content = key.private_bytes(pem, form, serialization.NoEncryption()) + certificate.public_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    descriptor = anonymous_file("certificate")
    try:
        os.write(descriptor, content)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return Serving(context, hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest())


def asking() -> ssl.SSLContext:
    """Of the side that connects. It takes any certificate: the challenge tells whether it was the right one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
