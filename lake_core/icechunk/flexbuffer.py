"""FlexBuffers of JSON values, by which version 2 stores metadata and the configuration.

The package `flatbuffers` has a module for them, but it reads values outside of their bounds without an error, follows
loops, and does not write whole numbers above 2**63 - 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(11)
_TYPED_VECTORS = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 15: _STRING, 36: 26}
"""The type of the elements of vectors that store it once."""
_FIXED_VECTORS = range(16, 25)
"""Vectors of two, three or four numbers, for each the types int, uint and float."""
_BLOB, _BOOL = 25, 26
_INLINE = (_NULL, _INT, _UINT, _FLOAT, _BOOL)
_WIDTHS = (1, 2, 4, 8)
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_DEEPEST = 64
_LARGEST_EXPANSION = 16
"""How many bytes of text one byte of a buffer may stand for, as texts can be shared."""


class FlexbufferError(ValueError):
    """The bytes are not a FlexBuffer of JSON values."""


def decode_flexbuffer(data: bytes) -> Any:
    """Return the value in a FlexBuffer. Raises FlexbufferError."""
    return _Reader(data).root()


def encode_flexbuffer(value: Any) -> bytes:
    """Return a JSON value as a FlexBuffer, with vectors and maps whose elements all name their types.

    Raises FlexbufferError for values that are not of JSON, and numbers of more than 64 bits.
    """
    return _Writer().encode(value)


class _Reader:
    """The values in a buffer. It visits each byte as one value at most, so that a small buffer has a small value."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._values_left = len(self._data)
        self._bytes_left = len(self._data) * _LARGEST_EXPANSION

    def root(self) -> Any:
        if len(self._data) < 3:
            raise FlexbufferError("it is shorter than a value")
        packed_type, width = self._data[-2], self._data[-1]
        if width not in _WIDTHS:
            raise FlexbufferError(f"its value is {width} bytes wide")
        return self._value(len(self._data) - 2 - width, width, packed_type, 0)

    def _value(self, position: int, width: int, packed_type: int, depth: int) -> Any:
        """Return the value at a position that is `width` bytes wide, or refers to one further to the front."""
        self._values_left -= 1
        if self._values_left < 0 or depth > _DEEPEST:
            raise FlexbufferError("it holds more values than it has bytes, or too deep ones")
        kind, own_width = packed_type >> 2, 1 << (packed_type & 3)
        if kind == _NULL:
            return None
        if kind in _INLINE:
            return self._number(kind, position, width)
        target = self._target(position, width)
        if kind in (_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT):
            return self._number(kind - _INDIRECT_INT + _INT, target, own_width)
        if kind == _KEY:
            return self._key(target)
        if kind == _STRING:
            return self._text(target, self._unsigned(target - own_width, own_width))
        if kind == _MAP:
            return self._map(target, own_width, depth)
        if kind == _VECTOR:
            return self._vector(target, own_width, depth)
        if kind in _TYPED_VECTORS:
            count = self._count(target, own_width)
            return self._elements(target, own_width, [_TYPED_VECTORS[kind] << 2] * count, depth)
        if kind in _FIXED_VECTORS:
            count, element = divmod(kind - _FIXED_VECTORS.start, 3)
            return self._elements(target, own_width, [(element + _INT) << 2] * (count + 2), depth)
        raise FlexbufferError(f"a value has the type {kind}, which is none of JSON")

    def _map(self, target: int, width: int, depth: int) -> dict[str, Any]:
        keys_width = self._unsigned(target - 2 * width, width)
        if keys_width not in _WIDTHS:
            raise FlexbufferError(f"the keys of a map are {keys_width} bytes wide")
        keys_at = self._target(target - 3 * width, width)
        count = self._count(keys_at, keys_width)
        keys = [self._key(self._target(keys_at + keys_width * number, keys_width)) for number in range(count)]
        values = self._vector(target, width, depth)
        if len(values) != len(keys):
            raise FlexbufferError(f"a map has {len(keys)} keys and {len(values)} values")
        return dict(zip(keys, values, strict=True))

    def _vector(self, target: int, width: int, depth: int) -> list[Any]:
        count = self._count(target, width)
        types = self._slice(target + count * width, count)
        return self._elements(target, width, list(types), depth)

    def _elements(self, target: int, width: int, types: list[int], depth: int) -> list[Any]:
        return [self._value(target + width * number, width, kind, depth + 1) for number, kind in enumerate(types)]

    def _count(self, target: int, width: int) -> int:
        count = self._unsigned(target - width, width)
        self._slice(target, count * width)
        return count

    def _key(self, target: int) -> str:
        end = self._data.find(b"\0", target)
        if end < 0:
            raise FlexbufferError("a key has no end")
        return self._text(target, end - target)

    def _text(self, target: int, length: int) -> str:
        self._bytes_left -= length
        if self._bytes_left < 0:
            raise FlexbufferError("its texts are larger than a buffer of its size can hold")
        try:
            return self._slice(target, length).decode()
        except UnicodeDecodeError:
            raise FlexbufferError("a text is not UTF-8") from None

    def _number(self, kind: int, position: int, width: int) -> Any:
        data = self._slice(position, width)
        if kind == _FLOAT:
            if width not in _FLOATS:
                raise FlexbufferError("a floating-point number is one byte wide")
            return struct.unpack(_FLOATS[width], data)[0]
        number = int.from_bytes(data, "little", signed=kind == _INT)
        return bool(number) if kind == _BOOL else number

    def _unsigned(self, position: int, width: int) -> int:
        return int.from_bytes(self._slice(position, width), "little")

    def _target(self, position: int, width: int) -> int:
        return position - self._unsigned(position, width)

    def _slice(self, start: int, length: int) -> bytes:
        if start < 0 or start + length > len(self._data):
            raise FlexbufferError("an offset or a length leads outside of it")
        return self._data[start : start + length]


@dataclass(frozen=True, slots=True)
class _Written:
    """A value, or the position of one that was written."""

    kind: int
    width: int
    """Of an inline value: the bytes that it needs. Of another: the width of its own elements."""
    data: bytes = b""
    """An inline value in its own width."""
    position: int = 0

    def packed_type(self, parent_width: int) -> int:
        width = max(self.width, parent_width) if self.kind in _INLINE else self.width
        return self.kind << 2 | _WIDTHS.index(width)


class _Writer:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._keys: dict[str, int] = {}

    def encode(self, value: Any) -> bytes:
        root = self._write(value)
        width = self._width_in_vector(root, 0)
        self._align(width)
        self._append(root, width)
        self._buffer += bytes((root.packed_type(width), width))
        return bytes(self._buffer)

    def _write(self, value: Any) -> _Written:
        if value is None:
            return _Written(_NULL, 1, b"\0")
        if isinstance(value, bool):
            return _Written(_BOOL, 1, bytes((value,)))
        if isinstance(value, int):
            return _integer(value)
        if isinstance(value, float):
            single = struct.pack("<f", value) if abs(value) < 3e38 or value != value else b""
            exact = single and (value != value or struct.unpack("<f", single)[0] == value)
            data = single if exact else struct.pack("<d", value)
            return _Written(_FLOAT, len(data), data)
        if isinstance(value, str):
            data = value.encode()
            width = _unsigned_width(len(data))
            self._align(width)
            self._buffer += len(data).to_bytes(width, "little")
            position = len(self._buffer)
            self._buffer += data + b"\0"
            return _Written(_STRING, width, position=position)
        if isinstance(value, list | tuple):
            return self._vector([self._write(each) for each in value], _VECTOR)
        if isinstance(value, dict):
            names = sorted(value, key=_checked_key)
            keys = self._vector([self._key(name) for name in names], 14)
            return self._vector([self._write(value[name]) for name in names], _MAP, keys)
        raise FlexbufferError(f"{type(value).__name__} is not a type of JSON")

    def _key(self, name: str) -> _Written:
        if name not in self._keys:
            self._keys[name] = len(self._buffer)
            self._buffer += name.encode() + b"\0"
        return _Written(_KEY, 1, position=self._keys[name])

    def _vector(self, values: list[_Written], kind: int, keys: _Written | None = None) -> _Written:
        prefix = 1 if keys is None else 3
        width = max(
            _unsigned_width(len(values)),
            1 if keys is None else self._width_in_vector(keys, 0),
            *(self._width_in_vector(value, number + prefix) for number, value in enumerate(values)),
        )
        self._align(width)
        if keys is not None:
            self._append(keys, width)
            self._buffer += keys.width.to_bytes(width, "little")
        self._buffer += len(values).to_bytes(width, "little")
        position = len(self._buffer)
        for value in values:
            self._append(value, width)
        if kind != 14:
            self._buffer += bytes(value.packed_type(width) for value in values)
        return _Written(kind, width, position=position)

    def _width_in_vector(self, value: _Written, number: int) -> int:
        """Return how wide the elements of the next vector must be for a value to fit as the one of this number."""
        if value.kind in _INLINE:
            return value.width
        end = len(self._buffer)
        return next(
            width for width in _WIDTHS if end + -end % width + number * width - value.position < 1 << (8 * width)
        )

    def _append(self, value: _Written, width: int) -> None:
        if value.kind not in _INLINE:
            self._buffer += (len(self._buffer) - value.position).to_bytes(width, "little")
        elif value.kind == _FLOAT:
            self._buffer += value.data if len(value.data) == width else struct.pack("<d", _float(value.data))
        else:
            number = int.from_bytes(value.data, "little", signed=value.kind == _INT)
            self._buffer += number.to_bytes(width, "little", signed=value.kind == _INT)

    def _align(self, width: int) -> None:
        self._buffer += bytes(-len(self._buffer) % width)


def _float(data: bytes) -> float:
    return float(struct.unpack(_FLOATS[len(data)], data)[0])


def _integer(value: int) -> _Written:
    if -(2**63) <= value < 2**63:
        width = next(width for width in _WIDTHS if -(1 << (8 * width - 1)) <= value < 1 << (8 * width - 1))
        return _Written(_INT, width, value.to_bytes(width, "little", signed=True))
    if 0 <= value < 2**64:
        return _Written(_UINT, 8, value.to_bytes(8, "little"))
    raise FlexbufferError(f"the number {value} has more than 64 bits")


def _unsigned_width(number: int) -> int:
    return next(width for width in _WIDTHS if number < 1 << (8 * width))


def _checked_key(name: Any) -> bytes:
    if not isinstance(name, str) or "\0" in name:
        raise FlexbufferError(f"{name!r} cannot be the key of a map: keys are texts without NUL")
    return name.encode()
