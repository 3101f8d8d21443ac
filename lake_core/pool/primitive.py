"""The bodies of primitive values: numbers, texts, addresses."""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from lake_core.pool import types
from lake_core.pool.errors import InvalidValue, InvalidZng
from lake_core.pool.types import FLOATS, SIGNED, UNSIGNED, PrimitiveType

if TYPE_CHECKING:
    from collections.abc import Callable

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_FLOAT = {2: struct.Struct("<e"), 4: struct.Struct("<f"), 8: struct.Struct("<d")}
_LOWEST = -(1 << 63)


def decode_uint(body: bytes) -> int:
    """Return an unsigned integer. Raises InvalidZng beyond 64 bits."""
    if len(body) > 8:
        raise InvalidZng(f"an integer has {len(body)} bytes; at most 8 are valid")
    return int.from_bytes(body, "little")


def encode_uint(number: int) -> bytes:
    """Encode an unsigned integer in as few bytes as possible; 0 has none."""
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def decode_int(body: bytes) -> int:
    """Return a signed integer, whose lowest bit is the sign. Raises InvalidZng beyond 64 bits."""
    number = decode_uint(body)
    if number & 1:
        return -(number >> 1) or _LOWEST
    return number >> 1


def encode_int(number: int) -> bytes:
    """Encode a signed integer in as few bytes as possible; 0 has none."""
    if number == _LOWEST:
        return b"\x01"
    return encode_uint(-number << 1 | 1 if number < 0 else number << 1)


def _bounded_decoder(
    type: PrimitiveType, decode: Callable[[bytes], int], low: int, high: int
) -> Callable[[bytes], int]:
    def decoded(body: bytes) -> int:
        number = decode(body)
        if not low <= number <= high:
            raise InvalidZng(f"{number} is out of the range of {type.name}")
        return number

    return decoded


def _bounded_encoder(
    type: PrimitiveType, encode: Callable[[int], bytes], low: int, high: int
) -> Callable[[Any], bytes]:
    def encoded(number: Any) -> bytes:
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise InvalidValue(f"{number!r} is not of type {type.name}; give an integer from {low} to {high}")
        return encode(number)

    return encoded


def _float_decoder(type: PrimitiveType, size: int) -> Callable[[bytes], float]:
    def decoded(body: bytes) -> float:
        if len(body) != size:
            raise InvalidZng(f"a {type.name} has {len(body)} bytes instead of {size}")
        return float(_FLOAT[size].unpack(body)[0])

    return decoded


def _float_encoder(type: PrimitiveType, size: int) -> Callable[[Any], bytes]:
    def encoded(number: Any) -> bytes:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidValue(f"{number!r} is not of type {type.name}; give a number")
        try:
            return _FLOAT[size].pack(number)
        except OverflowError:
            raise InvalidValue(f"{number!r} is out of the range of {type.name}; use a wider type") from None

    return encoded


def _decode_bool(body: bytes) -> bool:
    if len(body) != 1:
        raise InvalidZng(f"a bool has {len(body)} bytes instead of 1")
    return body[0] != 0


def _encode_bool(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise InvalidValue(f"{value!r} is not a bool; give True or False")
    return b"\x01" if value else b"\x00"


def decode_string(body: bytes) -> str:
    """Return a text. Raises InvalidZng if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidZng(f"a string is not UTF-8: {body[:40]!r}") from None


def _encode_string(text: Any) -> bytes:
    if not isinstance(text, str):
        raise InvalidValue(f"{text!r} is not a string; give a str")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{text!r} cannot be encoded as UTF-8; remove its lone surrogates") from None


def _encode_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValue(f"{value!r} is not a bytes object; give bytes")
    return bytes(value)


def decode_ip(body: bytes) -> Address:
    """Return an address. Raises InvalidZng."""
    if len(body) == 4:
        return ipaddress.IPv4Address(body)
    if len(body) == 16:
        return ipaddress.IPv6Address(body)
    raise InvalidZng(f"an ip has {len(body)} bytes instead of 4 or 16")


def _encode_ip(address: Any) -> bytes:
    if not isinstance(address, ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise InvalidValue(f"{address!r} is not an IP address; give an address of the module ipaddress")
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise InvalidValue(f"{address} has a zone, which the type ip cannot store; remove it")
    return address.packed


def decode_net(body: bytes) -> Network:
    """Return a network. Raises InvalidZng if it is not valid, or has address bits outside of its mask."""
    if len(body) not in (8, 32):
        raise InvalidZng(f"a net has {len(body)} bytes instead of 8 or 32")
    half = len(body) // 2
    address, mask = int.from_bytes(body[:half], "big"), int.from_bytes(body[half:], "big")
    bits = half * 8
    length = bits - ((1 << bits) - 1 - mask).bit_length()
    if mask != (1 << bits) - (1 << (bits - length)) or address & ~mask:
        raise InvalidZng(f"a net does not have a valid mask: {body.hex()}")
    network: type[Network] = ipaddress.IPv4Network if half == 4 else ipaddress.IPv6Network
    return network((address, length))


def _encode_net(network: Any) -> bytes:
    if not isinstance(network, ipaddress.IPv4Network | ipaddress.IPv6Network):
        raise InvalidValue(f"{network!r} is not an IP network; give a network of the module ipaddress")
    return network.network_address.packed + network.netmask.packed


def _decode_null(body: bytes) -> None:
    raise InvalidZng(f"a value of type null has a body of {len(body)} bytes instead of none")


def _encode_null(value: Any) -> bytes:
    raise InvalidValue(f"{value!r} is not null; give None")


DECODERS: dict[PrimitiveType, Callable[[bytes], Any]] = {
    **{type: _bounded_decoder(type, decode_uint, 0, (1 << bits) - 1) for type, bits in UNSIGNED.items()},
    **{
        type: _bounded_decoder(type, decode_int, -(1 << bits - 1), (1 << bits - 1) - 1) for type, bits in SIGNED.items()
    },
    **{type: _float_decoder(type, size) for type, size in FLOATS.items()},
    types.BOOL: _decode_bool,
    types.BYTES: bytes,
    types.STRING: decode_string,
    types.IP: decode_ip,
    types.NET: decode_net,
    types.NULL: _decode_null,
}
"""Functions from a body to a Python object, by type; all primitive types except `type`."""

ENCODERS: dict[PrimitiveType, Callable[[Any], bytes]] = {
    **{type: _bounded_encoder(type, encode_uint, 0, (1 << bits) - 1) for type, bits in UNSIGNED.items()},
    **{
        type: _bounded_encoder(type, encode_int, -(1 << bits - 1), (1 << bits - 1) - 1) for type, bits in SIGNED.items()
    },
    **{type: _float_encoder(type, size) for type, size in FLOATS.items()},
    types.BOOL: _encode_bool,
    types.BYTES: _encode_bytes,
    types.STRING: _encode_string,
    types.IP: _encode_ip,
    types.NET: _encode_net,
    types.NULL: _encode_null,
}
"""Functions from a Python object to a body, by type; all primitive types except `type`."""
