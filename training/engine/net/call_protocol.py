"""How a call is declared and parsed; first of the four modules of calls to read, then `worker_calls.py`.

Parsing is strict, whoever the caller is.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from scalebook.training.engine.net.wire import ProtocolError

Room = Sequence[memoryview]
MOST: Final = 2**62
"""Upper limit of numbers in a call, so that sums of them still fit 64 bits."""
_NO_ROOM: Final[Room] = ()


class CallSpec(NamedTuple):
    """A call: the types of its arguments, the function, and where the bytes that follow go, given the arguments."""

    types: tuple[type, ...]
    call: Callable[..., Any]
    room: Callable[..., Room] | None = None


class Reply(NamedTuple):
    """Plain values, and bytes that stay unchanged until the next call."""

    plain: Any
    body: Room = ()


class ReadCall(NamedTuple):
    """A parsed call. `room`: memory for the bytes that come with it, before it is carried out."""

    carry_out: Callable[[], Any]
    room: Room
    notes: Any


def read(text: bytes, offers: Mapping[str, CallSpec]) -> ReadCall:
    """Parse a call without carrying it out. ProtocolError for an unknown name or wrong arguments."""
    try:
        name, arguments, notes = json.loads(text)
        offer = offers[name]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError("channel: unknown call") from error
    if not isinstance(arguments, list) or tuple(map(type, arguments)) != offer.types or not all(map(_fits, arguments)):
        raise ProtocolError(f"channel: wrong arguments for {name}")
    try:
        room = _NO_ROOM if offer.room is None else offer.room(*arguments)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise ProtocolError(f"channel: wrong arguments for {name}") from error
    return ReadCall(partial(offer.call, *arguments), room, notes)


def numbers(plain: Any, kinds: tuple[type, ...] = (int,), count: int | None = None) -> list[Any]:
    """The list itself, if it has `count` numbers of these kinds that fit 64 bits; else ProtocolError."""
    if not isinstance(plain, list) or not all(type(one) in kinds and _fits(one) for one in plain):
        raise ProtocolError("channel: received no list of numbers")
    if count is not None and len(plain) != count:
        raise ProtocolError(f"channel: received {len(plain)} numbers instead of {count}")
    return plain


def count(number: int, most: int = MOST) -> int:
    """The number itself, if it is between 0 and `most`; else ProtocolError."""
    if not 0 <= number < most:
        raise ProtocolError(f"channel: received {number}, which is not a count")
    return number


def _fits(argument: Any) -> bool:
    return type(argument) is not int or -MOST < argument < MOST
