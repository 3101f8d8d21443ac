"""The text of primitive values: numbers, durations, times, addresses."""

from __future__ import annotations

import datetime
import ipaddress
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np

from lake_core.pool import types
from lake_core.pool.errors import InvalidValue
from lake_core.pool.primitive import DECODERS, ENCODERS, Address, Network
from lake_core.pool.type_value import decode_type
from lake_core.pool.types import FLOATS, SIGNED, UNSIGNED, PrimitiveType
from lake_core.pool.zson.quoting import quoted_string
from lake_core.pool.zson.type_text import format_type_value

if TYPE_CHECKING:
    from collections.abc import Callable

_SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "y": 365 * 86_400 * _SECOND,
    "w": 7 * 86_400 * _SECOND,
    "d": 86_400 * _SECOND,
    "h": 3_600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
"""Units of durations, in nanoseconds."""
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|([-+])(\d\d):(\d\d))", re.ASCII)
_DURATION: Final = re.compile(r"-?(?:[.0-9]+(?:ns|us|ms|s|m|h|d|w|y))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([.0-9]+)(ns|us|ms|s|m|h|d|w|y)", re.ASCII)
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_FLOAT: Final = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[iI]nf|nan|NaN)")
_NAN: Final = bytes.fromhex("010000000000f87f")
"""The body of NaN as `zed` writes it. It matters, as pools sort values with equal keys by their bytes."""


def format_duration(nanoseconds: int) -> str:
    """Return the text of a duration: years, days, hours and minutes, and the rest in the largest unit that fits."""
    if nanoseconds == 0:
        return "0s"
    parts = ["-"] if nanoseconds < 0 else []
    rest = abs(nanoseconds)
    for unit in ("y", "d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        unit = next(unit for unit in ("s", "ms", "us", "ns") if rest >= _UNITS[unit])
        count, fraction = divmod(rest, _UNITS[unit])
        digits = str(fraction).zfill(len(str(_UNITS[unit])) - 1).rstrip("0") if fraction else ""
        parts.append(f"{count}.{digits}{unit}" if digits else f"{count}{unit}")
    return "".join(parts)


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration. Raises InvalidValue."""
    if not _DURATION.fullmatch(text):
        raise InvalidValue(f"{text!r} is not a duration; write one such as 1h30m or 1.5s")
    total = 0
    for number, unit in _DURATION_PART.findall(text):
        whole, _, fraction = number.partition(".")
        if "." in fraction or not whole + fraction:
            raise InvalidValue(f"{text!r} is not a duration; write one such as 1h30m or 1.5s")
        scale = _UNITS[unit]
        total += int(whole or "0") * scale
        tenths = 0
        for digit in fraction.rstrip("0"):
            tenths += int(digit) * scale
            scale //= 10
        total += (tenths + 5) // 10
    return -total if text.startswith("-") else total


def format_time(nanoseconds: int) -> str:
    """Return the text of a time in UTC. `nanoseconds`: since the Unix epoch."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    whole = (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
    return f"{whole}.{str(rest).zfill(9).rstrip('0')}Z" if rest else f"{whole}Z"


def parse_time(text: str) -> int:
    """Return the nanoseconds since the Unix epoch of a time.

    Digits beyond nanoseconds are dropped. Raises InvalidValue.
    """
    match = _TIME.fullmatch(text)
    try:
        if not match:
            raise ValueError
        date, clock, fraction, sign, hours, minutes = match.groups()
        moment = datetime.datetime.fromisoformat(f"{date}T{clock}")
    except ValueError:
        raise InvalidValue(f"{text!r} is not a time; write one such as 2024-02-29T12:00:00.5Z") from None
    offset = int(f"{sign}1") * (int(hours) * 3600 + int(minutes) * 60) if sign else 0
    span = moment - _EPOCH
    return (span.days * 86_400 + span.seconds - offset) * _SECOND + int((fraction or "0")[:9].ljust(9, "0"))


def format_float(number: float, bits: int) -> str:
    """Return the shortest text that is read as the same float of that size.

    Whole numbers end in a point; zero has no sign.
    """
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if number == int(number) and -(1 << 63) <= number < 1 << 63:
        return f"{int(number)}."
    shortest = Decimal(repr(number) if bits == 64 else str(np.float32(number)))
    sign, digits, exponent = shortest.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    power = int(exponent) + len(digits) - 1
    prefix = "-" if sign else ""
    if power < -4 or power >= 6:
        mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
        return f"{prefix}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"
    if power < 0:
        return f"{prefix}0.{'0' * (-power - 1)}{text}"
    return f"{prefix}{text[: power + 1]}.{text[power + 1 :]}"


def format_ip(address: Address) -> str:
    """Return the text of an address."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return f"::ffff:{address.ipv4_mapped}"
    return str(address)


def format_net(network: Network) -> str:
    """Return the text of a network."""
    return f"{format_ip(network.network_address)}/{network.prefixlen}"


def parse_ip(text: str) -> Address:
    """Return an address. Raises InvalidValue."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise InvalidValue(f"{text!r} is not an IP address; write one such as 10.0.0.1 or 2001:db8::1") from None


def parse_net(text: str) -> Network:
    """Return a network; address bits outside of its mask are dropped. Raises InvalidValue."""
    address, slash, length = text.partition("/")
    if not slash or not length.isdecimal():
        raise InvalidValue(f"{text!r} is not an IP network; write one such as 10.0.0.0/8")
    try:
        return ipaddress.ip_network((address, int(length)), strict=False)
    except ValueError:
        raise InvalidValue(f"{text!r} is not an IP network; write one such as 10.0.0.0/8") from None


def _parse_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InvalidValue(f"{text!r} is not an integer; write digits")
    return int(text)


def _parse_float(text: str) -> float:
    if not _FLOAT.fullmatch(text):
        raise InvalidValue(f"{text!r} is not a number; write one such as 1.5")
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise InvalidValue(f"{text!r} is out of the range of float64; write +Inf or -Inf for infinity")
    return number


def _parse_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidValue(f"{text!r} is not a bool; write true or false")
    return text == "true"


def _parse_bytes(text: str) -> bytes:
    try:
        if not text.startswith("0x"):
            raise ValueError
        return bytes.fromhex(text[2:])
    except ValueError:
        raise InvalidValue(f"{text!r} is not a bytes value; write 0x and pairs of hexadecimal digits") from None


def format_string(body: bytes) -> str:
    r"""Return the text of a string. Bytes that are not UTF-8 are shown as `\ufffd`."""
    try:
        return quoted_string(body.decode())
    except UnicodeDecodeError:
        return quoted_string(body.decode("utf-8", "replace")).replace("�", "\\ufffd")


def _int_formatter(type: PrimitiveType) -> Callable[[bytes], str]:
    decode = DECODERS[type]
    return lambda body: str(decode(body))


def _float_formatter(type: PrimitiveType) -> Callable[[bytes], str]:
    decode, bits = DECODERS[type], 64 if type == types.FLOAT64 else 32
    return lambda body: format_float(decode(body), bits)


_FORMATTERS: dict[PrimitiveType, Callable[[bytes], str]] = {
    **{type: _int_formatter(type) for type in (*UNSIGNED, *SIGNED)},
    **{type: _float_formatter(type) for type in FLOATS},
    types.DURATION: lambda body: format_duration(DECODERS[types.DURATION](body)),
    types.TIME: lambda body: format_time(DECODERS[types.TIME](body)),
    types.BOOL: lambda body: "true" if DECODERS[types.BOOL](body) else "false",
    types.BYTES: lambda body: f"0x{body.hex()}",
    types.STRING: format_string,
    types.IP: lambda body: format_ip(DECODERS[types.IP](body)),
    types.NET: lambda body: format_net(DECODERS[types.NET](body)),
    types.TYPE: lambda body: format_type_value(decode_type(body)),
    types.NULL: lambda body: str(DECODERS[types.NULL](body)),
}

_PARSERS: dict[PrimitiveType, Callable[[str], object]] = {
    **dict.fromkeys((*UNSIGNED, *SIGNED), _parse_int),
    **dict.fromkeys(FLOATS, _parse_float),
    types.DURATION: parse_duration,
    types.TIME: parse_time,
    types.BOOL: _parse_bool,
    types.BYTES: _parse_bytes,
    types.STRING: str,
    types.IP: parse_ip,
    types.NET: parse_net,
}


def format_primitive(type: PrimitiveType, body: bytes) -> str:
    """Return the text of a primitive value. Raises InvalidZng if its bytes are not valid for its type."""
    return _FORMATTERS[type](body)


def parse_primitive(type: PrimitiveType, text: str) -> bytes:
    """Return the body of a primitive value; strings are given without quotes. Raises InvalidValue."""
    if type == types.FLOAT64 and text in ("NaN", "nan"):
        return _NAN
    return ENCODERS[type](_PARSERS[type](text))
