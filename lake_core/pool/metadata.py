"""Metadata objects of a lake: ZNG streams of records. The name of a record's type is the kind of the record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lake_core.errors import NotFound
from lake_core.pool.errors import DamagedLake, InvalidValue, InvalidZng
from lake_core.pool.ksuid import KSUID, format_ksuid, parse_ksuid
from lake_core.pool.types import INT64, STRING, TIME, UINT8, UINT64, Field, NamedType, RecordType, Type, under
from lake_core.pool.value import Value, split_record
from lake_core.pool.zng.frame import END_OF_STREAM
from lake_core.pool.zng.reader import read_values
from lake_core.pool.zng.tag import tagged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.store import ObjectStore

MAX_METADATA: Final = 64 << 20
"""The largest metadata object that is read, in bytes."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS: Final = (UINT8, UINT64, INT64, TIME)
"""The types that integers in metadata can have."""


def read_stream(store: ObjectStore, key: str) -> bytes:
    """Return the bytes of a metadata object.

    Raises:
        NotFound: There is no such object.
        DamagedLake: It is too large.
    """
    data = store.get(key, 0, MAX_METADATA + 1)
    if len(data) > MAX_METADATA:
        raise DamagedLake(f"{key} is larger than {MAX_METADATA} bytes; restore it from a backup", key)
    return bytes(data)


def read_metadata(store: ObjectStore, key: str) -> list[Value]:
    """Return the values of a metadata object.

    Raises:
        NotFound: There is no such object.
        DamagedLake: It is cut short, too large or not ZNG.
    """
    data = read_stream(store, key)
    try:
        return decode_metadata(data)
    except InvalidZng as error:
        raise DamagedLake(f"{key} is not ZNG: {error}; restore it from a backup", key) from None


def decode_metadata(data: bytes) -> list[Value]:
    """Return the values of the bytes of a metadata object, which end with an end of stream. Raises InvalidZng."""
    check_complete(data)
    return list(read_values(bytes(data)))


def check_complete(data: bytes) -> None:
    """Raise InvalidZng unless the bytes of a metadata object end with an end of stream, or there are none."""
    if data and not data.endswith(END_OF_STREAM):
        raise InvalidZng("it is cut short")


def required_metadata(store: ObjectStore, key: str, reason: str) -> list[Value]:
    """Return the values of a metadata object that must exist, for a reason. Raises DamagedLake."""
    try:
        return read_metadata(store, key)
    except NotFound:
        raise DamagedLake(f"{key} is missing, but {reason}; restore it from a backup", key) from None


def type_name(value: Value) -> str:
    """Return the name of a value's type, which is the kind of a record of metadata; empty for values without one."""
    return name_of_type(value.type)


def name_of_type(type: Type) -> str:
    """Return the name of a type; empty for types without one."""
    return type.name if isinstance(type, NamedType) else ""


@dataclass(frozen=True)
class Record:
    """A record of metadata.

    Each method raises InvalidZng for a field that is missing, or of another type than it reads.
    """

    value: Value

    @cached_property
    def _fields(self) -> Mapping[str, Value]:
        """Return the fields by their names; none if the value is not a record.

        They are split once, because cached snapshots hold very many records.
        """
        record = self.value.under()
        if not isinstance(record.type, RecordType) or record.body is None:
            return {}
        bodies = split_record(record.type, record.body)
        return {each.name: Value(each.type, body) for each, body in zip(record.type.fields, bodies, strict=True)}

    def field(self, name: str) -> Value:
        """Return a field's value."""
        field = self._fields.get(name)
        if field is None:
            raise InvalidZng(
                f"a record of the type {type_name(self.value) or 'without a name'!r} has no field {name!r}"
            )
        return field

    def record(self, name: str) -> Record:
        """Return a field that is a record."""
        return Record(self.field(name))

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        return str(self._decoded(name, (STRING,)))

    def integer(self, name: str) -> int:
        """Return a field that is an integer."""
        return int(self._decoded(name, INTEGERS))

    def ksuid(self, name: str) -> str:
        """Return a field that is an id."""
        try:
            return format_ksuid(self._decoded(name, (KSUID.inner,)))
        except InvalidValue as error:
            raise InvalidZng(str(error)) from None

    def time(self, name: str) -> datetime:
        """Return a field that is a time, in UTC; truncated to microseconds."""
        return time_of(self.integer(name))

    def _decoded(self, name: str, allowed: Sequence[Type]) -> Any:
        field = self.field(name)
        if under(field.type) not in allowed or field.body is None:
            raise InvalidZng(f"the field {name!r} is null or has an unexpected type")
        return field.decode()


def time_of(nanoseconds: int) -> datetime:
    """Return a time in UTC from nanoseconds since the Unix epoch.

    Raises InvalidZng for years that a datetime cannot have.
    """
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        raise InvalidZng(f"the time {nanoseconds} is out of range") from None


def nanoseconds_of(time: datetime) -> int:
    """Return the nanoseconds since the Unix epoch."""
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


def id_value(id: str) -> Value:
    """Return an id as a value."""
    return Value(KSUID, parse_ksuid(id))


def named_record(name: str, fields: Mapping[str, Value]) -> Value:
    """Return a record whose type has a name, or has none if the name is empty."""
    type = RecordType(tuple(Field(each, value.type) for each, value in fields.items()))
    body = b"".join([tagged(value.body) for value in fields.values()])
    return Value(NamedType(name, type) if name else type, body)
