"""Authentication: both sides prove that they have the run's key, and then the worker says who it is.

Each side sends a nonce, and HMAC-SHA256 by the key over its role, both nonces, and the fingerprint of the certificate
that it sees (zeros without TLS). So a proof cannot be replayed, reflected, or relayed by a man in the middle, whose
certificate would differ. Before the proof only 32 and 64 bytes are read. The listening side makes a self-signed
certificate for one run; its name means nothing.
"""

import hashlib
import hmac
import json
import os
import secrets
import socket
import ssl
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from scalebook.training.engine.memory.region import anonymous_file
from scalebook.training.engine.net.wire import Kind, ProtocolError, Wire

PROTOCOL: Final = 2
GREETING_S: Final = 5.0
"""Timeout of each frame of the handshake, TLS included."""
KEY_BYTES: Final = 32
GIVEN_UP: Final = "channel: this worker has been given up, or another process has replaced it."
_NONCE: Final = 32
_PROOF: Final = 32
_HELLO: Final = 1024  # bytes at most
_PLAIN: Final = bytes(32)
Use = Literal["number", "calls", "pushes", "pulse"]
"""What a connection is for. `number`: only to be given an generation."""


class Refused(ConnectionError):
    """The other side refuses this worker; the message says why. `later`: it may accept it at another time."""

    def __init__(self, why: str, later: bool = False) -> None:
        super().__init__(why)
        self.later = later


class Hello(NamedTuple):
    """Who connects, and for what. `run`: its name. `digest`: of the settings. Of two processes that are the same worker
    the one with the larger `generation` counts; the server gives a process its generation, which is 0 until then."""

    run: str
    digest: str
    worker: int
    generation: int
    use: Use = "calls"


class HandshakeResult(NamedTuple):
    """The connection, and a new generation if `use` was `number`."""

    wire: Wire
    generation: int


class Secret:
    """The run's key. It is never sent."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"key: has {len(key)} bytes instead of {KEY_BYTES}.")
        self._key = key

    def __repr__(self) -> str:
        return "Secret()"

    def proof(self, role: bytes, *parts: bytes) -> bytes:
        """HMAC-SHA256 over a role and parts of fixed lengths."""
        return hmac.new(self._key, b"scalebook " + role + b"".join(parts), hashlib.sha256).digest()

    @classmethod
    def made(cls, path: Path) -> "Secret":
        """Create a key in a new file that only its owner can read. FileExistsError if the file exists."""
        key = secrets.token_bytes(KEY_BYTES)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(key.hex() + "\n")
            os.link(new, path)  # whole, from the moment that it is there
        finally:
            new.unlink(missing_ok=True)
        return cls(key)

    @classmethod
    def read(cls, path: Path) -> "Secret":
        """Read a key file. ValueError if other users can read it, or if it holds no key."""
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise ValueError(f"key: {path} can be read by other users, or belongs to one. Run: chmod 600 {path}")
            text = file.read(2 * KEY_BYTES + 2)
        try:
            return cls(bytes.fromhex(text.decode("ascii")))
        except ValueError as error:
            raise ValueError(
                f"key: {path} does not contain a Scalebook key. Remove the file: a new key is then created."
            ) from error


class ServerTls(NamedTuple):
    """The TLS context of the listening side, and the SHA-256 of its certificate."""

    context: ssl.SSLContext
    fingerprint: bytes


def serving() -> ServerTls:
    """A TLS 1.3 context with a new key, which is never written to disk. `cryptography` comes with MLflow."""
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
    return ServerTls(context, hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest())


def asking() -> ssl.SSLContext:
    """The TLS context of the connecting side. It accepts any certificate: the HMAC proof shows whether it is the right
    one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def greet(connection: socket.socket, secret: Secret, hello: Hello, context: ssl.SSLContext | None) -> HandshakeResult:
    """The connecting side of the handshake. Raises `Refused`, or ConnectionError if the other side lacks the key; the
    connection is then closed."""
    connection.settimeout(GREETING_S)
    try:
        seen = _PLAIN
        if context is not None:
            connection = secured = context.wrap_socket(connection)
            seen = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").digest()
        wire, mine = Wire(connection, GREETING_S), secrets.token_bytes(_NONCE)
        wire.send(Kind.NONCE, text=mine)
        answer = _exactly(wire, Kind.NONCE, _NONCE + _PROOF)
        theirs, proof = answer[:_NONCE], answer[_NONCE:]
        if not hmac.compare_digest(proof, secret.proof(b"server", mine, theirs, seen)):
            raise ProtocolError("channel: the server has another key, or the connection is intercepted")
        wire.send(Kind.PROOF, text=secret.proof(b"worker", mine, theirs, seen))
        wire.send(Kind.HELLO, text=json.dumps({"protocol": PROTOCOL, **hello._asdict()}).encode())
        return HandshakeResult(wire, _taken(wire))
    except BaseException:
        connection.close()
        raise


def _taken(wire: Wire) -> int:
    head = wire.head(_HELLO, within_s=GREETING_S)
    text = wire.text(head)
    if head.kind == Kind.REFUSED:
        refusal = json.loads(text)
        raise Refused(str(refusal["why"]), bool(refusal["later"]))
    if head.kind != Kind.WELCOME or head.body:
        raise ProtocolError("channel: the server neither accepted nor refused the connection")
    return head.number


def admit(
    connection: socket.socket, secret: Secret, tls: ServerTls | None, check: Callable[[Hello], int]
) -> tuple[Wire, Hello]:
    """The listening side of the handshake. `check` returns the generation to send, or raises `Refused`, which is sent
    and raised here. OSError (ConnectionError, ssl.SSLError, TimeoutError) for anything else; the connection is then
    closed."""
    connection.settimeout(GREETING_S)
    try:
        fingerprint = _PLAIN
        if tls is not None:
            connection, fingerprint = tls.context.wrap_socket(connection, server_side=True), tls.fingerprint
        wire, own_nonce = Wire(connection, GREETING_S), secrets.token_bytes(_NONCE)
        peer_nonce = _exactly(wire, Kind.NONCE, _NONCE)
        wire.send(Kind.NONCE, text=own_nonce + secret.proof(b"server", peer_nonce, own_nonce, fingerprint))
        proof = _exactly(wire, Kind.PROOF, _PROOF)
        if not hmac.compare_digest(proof, secret.proof(b"worker", peer_nonce, own_nonce, fingerprint)):
            raise ProtocolError("channel: a worker has another key, or the connection is intercepted")
        head = wire.head(_HELLO, within_s=GREETING_S)
        if head.kind != Kind.HELLO or head.body:
            raise ProtocolError("channel: no hello")
        hello = _admitted(wire, wire.text(head), check)
    except BaseException:
        connection.close()
        raise
    return wire, hello


def _admitted(wire: Wire, text: bytes, check: Callable[[Hello], int]) -> Hello:
    try:
        hello = _hello(text)
        generation = check(hello)
    except Refused as refusal:
        wire.send(Kind.REFUSED, text=json.dumps({"why": str(refusal)[: _HELLO // 2], "later": refusal.later}).encode())
        raise
    wire.send(Kind.WELCOME, generation)
    return hello


def _exactly(wire: Wire, kind: Kind, size: int) -> bytes:
    head = wire.head(size, within_s=GREETING_S)
    if (head.kind, head.text, head.body) != (kind, size, 0):
        raise ProtocolError(f"channel: no {kind.name.lower()}")
    return wire.text(head)


def _hello(text: bytes) -> Hello:
    try:
        message: dict[str, Any] = json.loads(text)
        protocol = message.pop("protocol")
        hello = Hello(**message)
        right = (hello.run, hello.digest, hello.worker, hello.generation, hello.use)
        if [type(value) for value in right] != [str, str, int, int, str] or hello.use not in get_args(Use):
            raise TypeError("hello")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError("channel: no hello") from error
    if protocol != PROTOCOL:
        raise Refused(
            f"channel: this node uses version {PROTOCOL} of the protocol, but the other uses version {protocol}. "
            "Install the same version of Scalebook on both nodes."
        )
    return hello
