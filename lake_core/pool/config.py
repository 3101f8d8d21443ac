"""The configurations of pools and branches, as the journals of a lake keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from lake_core.pool.errors import InvalidPoolConfig, InvalidZng
from lake_core.pool.metadata import Record, id_value, named_record
from lake_core.pool.types import INT64, STRING, TIME, ArrayType, NamedType
from lake_core.pool.value import Value

Order: TypeAlias = Literal["asc", "desc"]

SEEK_STRIDE: Final = 64 << 10
THRESHOLD: Final = 500 << 20

_WHICH = NamedType("order.Which", STRING)
_KEYS = NamedType("field.List", ArrayType(NamedType("field.Path", ArrayType(STRING))))
_LAYOUT = "order.SortKey"
"""Version 1.6 of `zed` calls this type `order.Layout`. It reads both, and so do later versions."""


class Config(Protocol):
    """A configuration that a journal stores under a name."""

    @property
    def name(self) -> str:
        """Return the name, which is the key in the journal."""
        ...

    @property
    def ts(self) -> int:
        """Return when it was created, in nanoseconds since the Unix epoch."""
        ...

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        ...


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """The configuration of a pool.

    Attributes:
        ts: When the pool was created, in nanoseconds since the Unix epoch.
        name: Its name in the lake.
        id: Its id, and the name of its folder.
        keys: The keys that its values are sorted by, as paths of field names.
        order: The direction of the sort.
        seek_stride: After how many bytes of keys a seek index gets its next entry.
        threshold: After how many bytes of values a load begins a new data object.
    """

    TYPE: ClassVar = "pools.Config"

    ts: int
    name: str
    id: str
    keys: tuple[tuple[str, ...], ...]
    order: Order
    seek_stride: int = SEEK_STRIDE
    threshold: int = THRESHOLD

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidPoolConfig("a pool needs a name")
        if not self.keys or not all(path and all(path) for path in self.keys):
            raise InvalidPoolConfig("a pool needs a key; give the path of a field, such as 'ts' or 'user.id'")
        if self.order not in ("asc", "desc"):
            raise InvalidPoolConfig(f"a pool cannot have the order {self.order!r}; give 'asc' or 'desc'")
        if not 0 < self.seek_stride < 1 << 63 or not 0 < self.threshold < 1 << 63:
            raise InvalidPoolConfig(
                "the seek stride and the threshold of a pool are numbers of bytes; give integers from 1 up"
            )

    @property
    def descending(self) -> bool:
        """Return whether the largest keys come first."""
        return self.order == "desc"

    @classmethod
    def from_value(cls, value: Value) -> PoolConfig:
        """Return the configuration of a record of metadata. Raises InvalidZng."""
        record = Record(value)
        layout = record.record("layout")
        keys: Any = layout.field("keys")
        if keys.type != _KEYS or keys.body is None:
            raise InvalidZng("a pool's keys are not lists of field names")
        order: Any = layout.text("order")
        try:
            return cls(
                ts=record.integer("ts"),
                name=record.text("name"),
                id=record.ksuid("id"),
                keys=tuple(tuple(path or ()) for path in keys.decode()),
                order=order,
                seek_stride=record.integer("seek_stride"),
                threshold=record.integer("threshold"),
            )
        except InvalidPoolConfig as error:
            raise InvalidZng(str(error)) from None

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        layout = named_record(
            _LAYOUT,
            {"order": Value.of(_WHICH, self.order), "keys": Value.of(_KEYS, [list(path) for path in self.keys])},
        )
        return named_record(
            self.TYPE,
            {
                "ts": Value.of(TIME, self.ts),
                "name": Value.of(STRING, self.name),
                "id": id_value(self.id),
                "layout": layout,
                "seek_stride": Value.of(INT64, self.seek_stride),
                "threshold": Value.of(INT64, self.threshold),
            },
        )


@dataclass(frozen=True, slots=True)
class BranchConfig:
    """A branch of a pool.

    Attributes:
        ts: When the branch was created, in nanoseconds since the Unix epoch.
        name: Its name in the pool.
        commit: The id of its last commit: its tip.
    """

    TYPE: ClassVar = "branches.Config"

    ts: int
    name: str
    commit: str

    @classmethod
    def from_value(cls, value: Value) -> BranchConfig:
        """Return the branch of a record of metadata. Raises InvalidZng."""
        record = Record(value)
        return cls(record.integer("ts"), record.text("name"), record.ksuid("commit"))

    def to_value(self) -> Value:
        """Return it as a record of metadata."""
        return named_record(
            self.TYPE,
            {"ts": Value.of(TIME, self.ts), "name": Value.of(STRING, self.name), "commit": id_value(self.commit)},
        )
