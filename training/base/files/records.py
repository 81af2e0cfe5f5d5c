"""Records: small files by which processes know of each other, each of one type, written atomically and read safely.

A file may hold anything: it may be torn by a crash, emptied by a power cut, written by hand or by a newer Scalebook. So
a reader states the type that it expects, and gets that type, None if there is no file, or `BrokenRecord`, which names
the file and what is wrong with it. `peek` returns None for a broken file too, for files that are soon written again.
"""

import copy
import json
import os
import time
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.safe_reading import opened

VERSION: Final = 1
"""The version of all records. Keys may come and go within a version; if a key changes its meaning, the version
rises."""

LARGEST: Final = 64 * 2**20
"""The largest file that is read, bytes; our largest record, a description, has 0.2 MB."""

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
"""Maps JSON content and its key to the value; ValueError says what was expected."""


class BrokenRecord(ConfigError):
    """A file that exists and is not a record of its type. `newer`: a later version of Scalebook wrote it."""

    def __init__(self, path: Path, why: str, newer: bool = False) -> None:
        self.path, self.why, self.newer = path, why, newer
        fix = "Use that version here." if newer else "Restore it from a copy, or delete it."
        super().__init__(str(path), why if newer else f"is broken ({why})", fix)

    def __reduce__(self) -> tuple[type["BrokenRecord"], tuple[Path, str, bool]]:  # type: ignore[override]  # other arguments
        return type(self), (self.path, self.why, self.newer)


def load(path: Path, kind: type[T]) -> T | None:
    """The record in `path`: a dataclass, or any type made of JSON's; None if there is no file. Raises BrokenRecord."""
    content = _content(path)
    if content is None:
        return None
    return parse(path, content, kind)


def parse(path: Path, content: bytes, kind: type[T]) -> T:
    """The record in `content`, which was read from `path`. Raises BrokenRecord."""
    try:
        raw = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise BrokenRecord(path, "nested too deeply") from None
    except ValueError as error:
        raise BrokenRecord(path, "empty" if not content.strip() else f"not JSON: {error}") from None
    if is_dataclass(kind) and isinstance(raw, dict):
        version = raw.get("version", VERSION)
        if isinstance(version, int) and version > VERSION:
            words = f"was written by a newer Scalebook (it has version {version}, but this one reads up to {VERSION})"
            raise BrokenRecord(path, words, newer=True)
    try:
        record: T = _decoder(kind)(raw, "")  # type: ignore[arg-type]  # a type can be hashed
    except (ValueError, OverflowError) as error:
        raise BrokenRecord(path, str(error)) from None
    return record


def peek(path: Path, kind: type[T]) -> T | None:
    """Like `load`, but a broken file gives None."""
    try:
        return load(path, kind)
    except BrokenRecord:
        return None


def mapping(path: Path) -> dict[str, Any] | None:
    """The YAML mapping in `path`; None if there is no file. Raises BrokenRecord."""
    content = _content(path)
    if content is None:
        return None
    try:
        content_ = copy.deepcopy(_yaml(content))
    except ConfigError as error:
        raise BrokenRecord(path, f"{error.problem.key} {error.problem.message}") from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise BrokenRecord(path, f"not YAML: {error or type(error).__name__}") from None
    if not isinstance(content_, dict) or not all(isinstance(key, str) for key in content_):
        raise BrokenRecord(path, "not a mapping from names to values" if content.strip() else "empty")
    return content_


@lru_cache(maxsize=256)
def _yaml(content: bytes) -> Any:
    """Cached: a search takes 10 ms, and pages and commands read the same ones again and again."""
    from scalebook.training.base.files import yaml  # strategies are used where torch and Lightning alone are installed

    return yaml.load(content.decode("utf-8"), ours=True)


def save(path: Path, record: Any, *, durable: bool = False) -> None:
    """Replace `path` with a dataclass and our version, or with plain JSON content. See `put`."""
    content = {"version": VERSION, **asdict(record)} if is_dataclass(record) else record  # type: ignore[arg-type]
    put(path, json.dumps(content, indent=1).encode(), durable=durable)


def put(path: Path, content: bytes, *, durable: bool = False, mode: int | None = None) -> None:
    """Replace `path` atomically: a reader sees the old or the new content, and a failure leaves the old one.

    `durable`: also after a power cut, which takes a few ms. `mode`: the file's mode, if not the process's default;
    until then only this user can read it. OSError if it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with open(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in `folder` to disk: otherwise a power cut can lose a new or renamed file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _content(path: Path) -> bytes | None:
    """The bytes of a plain file; a link, or a pipe in its place, which would block whoever opens it, is an error."""
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LARGEST:
                raise BrokenRecord(path, f"it has {size / 2**20:.0f} MB, more than any record can have")
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenRecord):
            raise
        raise BrokenRecord(path, getattr(error, "strerror", None) or str(error)) from None


@cache
def _decoder(hint: Any) -> Decoder:
    origin = get_origin(hint)
    if hint is Any:
        return lambda raw, key: raw
    if is_dataclass(hint) and isinstance(hint, type):
        return _of_class(hint)
    if origin is Literal:
        return _of_choices(get_args(hint))
    if origin is list:
        return _of_list(_decoder(get_args(hint)[0]))
    if origin is dict:
        return _of_dict(_decoder(get_args(hint)[1]))
    if origin in (Union, types.UnionType):
        return _of_union([arg for arg in get_args(hint) if arg is not types.NoneType], types.NoneType in get_args(hint))
    return _of_scalar(hint)


def _of_scalar(kind: type) -> Decoder:
    number = kind in (int, float)

    def decode(raw: Any, key: str) -> Any:
        if isinstance(raw, kind) and not (number and isinstance(raw, bool)):
            return raw
        if number and isinstance(raw, int | float) and not isinstance(raw, bool) and kind(raw) == raw:
            return kind(raw)
        raise ValueError(_expected(raw, key, kind.__name__))

    return decode


def _of_choices(choices: tuple[Any, ...]) -> Decoder:
    def decode(raw: Any, key: str) -> Any:
        if not isinstance(raw, str) or raw not in choices:
            raise ValueError(_expected(raw, key, f"one of {', '.join(map(str, choices))}"))
        return raw

    return decode


def _of_list(inner: Decoder) -> Decoder:
    def decode(raw: Any, key: str) -> Any:
        if not isinstance(raw, list):
            raise ValueError(_expected(raw, key, "list"))
        return [inner(item, key) for item in raw]

    return decode


def _of_dict(inner: Decoder) -> Decoder:
    def decode(raw: Any, key: str) -> Any:
        if not isinstance(raw, dict):
            raise ValueError(_expected(raw, key, "mapping"))
        return {name: inner(value, f"{key}.{name}") for name, value in raw.items()}

    return decode


def _of_union(kinds: list[Any], optional: bool) -> Decoder:
    """`X | None`; or classes, of which each but the first has a field with one choice (a Literal) that tells it."""
    first, *others = kinds
    inner, by_field = _decoder(first), [(_tag(kind), _decoder(kind)) for kind in others]

    def decode(raw: Any, key: str) -> Any:
        if raw is None and optional:
            return None
        for (name, choice), decoder in by_field:
            if isinstance(raw, dict) and raw.get(name) == choice:
                return decoder(raw, key)
        return inner(raw, key)

    return decode


def _tag(kind: Any) -> tuple[str, str]:
    """Field and value by which a class of several is told."""
    hints = get_type_hints(kind)
    ((name, (choice,)),) = [(name, get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Literal]
    return name, choice


def _of_class(kind: type) -> Decoder:
    """Keys that the class does not have are passed over."""
    decoders: list[tuple[str, Decoder, bool]] = []  # filled at the first use, since classes may hold their own kind

    def decode(raw: Any, key: str) -> Any:
        if not isinstance(raw, dict):
            raise ValueError(_expected(raw, key, "mapping"))
        if not decoders:
            hints = get_type_hints(kind)
            decoders.extend((field.name, _decoder(hints[field.name]), _required(field)) for field in fields(kind))
        values = {}
        for name, inner, required in decoders:
            if name in raw:
                values[name] = inner(raw[name], f"{key}.{name}" if key else name)
            elif required:
                raise ValueError(f"{f'{key}.{name}' if key else name} is missing")
        return kind(**values)

    return decode


def _required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _expected(raw: Any, key: str, wanted: str) -> str:
    text = repr(raw)
    text = f"{text[:40]}..." if len(text) > 40 else text
    return f"{key or 'the whole record'} is {text}, not {wanted}"
