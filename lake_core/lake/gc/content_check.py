"""The check of objects' contents, in groups of objects. Each group is a task of a runner.

Objects that are named by their content are compared with the hashes in their names. Formats decode their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from lake_core.dataset import KeyClass, UnknownFormat, dataset_format
from lake_core.errors import LakeError, NotFound
from lake_core.graveler import read_sstable
from lake_core.graveler.identity import AFTER_HASHING, table_id
from lake_core.lake.gc.problem import Problem
from lake_core.lake.repository import TREES
from lake_core.lake.state.content import digest_of
from lake_core.lake.state.dataset_record import path_above
from lake_core.store import FolderStore
from lake_core.store.large_object import PART

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lake_core.runner import Runner
    from lake_core.store import ObjectMeta, ObjectStore

_OBJECTS_A_GROUP = 1000
_BYTES_A_GROUP = 256 << 20
_GROUPS_AT_ONCE = 256
_READ_AT_ONCE = 8


@dataclass(slots=True)
class ObjectGroup:
    """Objects near one another in a listing."""

    objects: list[tuple[str, ObjectMeta | None]] = field(default_factory=list)
    """Keys, with the objects' metadata, or None for those that do not exist."""
    read: list[str] = field(default_factory=list)
    """The keys of those whose content is read: all of the group, or none."""
    problems: dict[str, Problem] = field(default_factory=dict)
    """The problems of their contents, by key."""


def check_contents(
    root: ObjectStore,
    objects: Iterable[tuple[str, ObjectMeta | None]],
    is_read: Callable[[ObjectMeta], bool],
    formats: Mapping[str, Collection[str]],
    run: Runner,
) -> Iterator[ObjectGroup]:
    """Yield the objects in groups, after the content of those that are to be read was compared.

    Args:
        root: The lake's root.
        objects: Keys with metadata, or None for objects that do not exist.
        is_read: Returns whether to read the content of an object.
        formats: The formats of datasets by path.
        run: Calls the tasks.
    """
    reading: list[ObjectGroup] = []
    for group in _groups(objects, is_read):
        if not group.read:
            yield group  # not held until others are read: there may be millions of such objects
            continue
        reading.append(group)
        if len(reading) == _GROUPS_AT_ONCE:
            yield from _checked(root, reading, formats, run)
            reading = []
    if reading:
        yield from _checked(root, reading, formats, run)


def _checked(
    root: ObjectStore, groups: Sequence[ObjectGroup], formats: Mapping[str, Collection[str]], run: Runner
) -> Iterator[ObjectGroup]:
    """Check the contents of groups, and yield these."""
    results = run(ContentTask(root, tuple(tuple(group.read) for group in groups), formats), len(groups))
    for group, checked in zip(groups, results, strict=True):
        here = (_problem_here(root, key, formats) for key in checked.unread)
        problems = [*checked.problems, *(problem for problem in here if problem is not None)]
        group.problems = {problem.key: problem for problem in problems}
        yield group


def _groups(
    objects: Iterable[tuple[str, ObjectMeta | None]], is_read: Callable[[ObjectMeta], bool]
) -> Iterator[ObjectGroup]:
    """Divide objects into groups that are read as a whole, and groups of which nothing is read."""
    reading, others = ObjectGroup(), ObjectGroup()
    size = 0
    for key, meta in objects:
        if meta is None or not is_read(meta):
            others.objects.append((key, meta))
            if len(others.objects) >= _OBJECTS_A_GROUP:
                yield others
                others = ObjectGroup()
            continue
        reading.objects.append((key, meta))
        reading.read.append(key)
        size += meta.size
        if len(reading.objects) >= _OBJECTS_A_GROUP or size >= _BYTES_A_GROUP:
            yield reading
            reading, size = ObjectGroup(), 0
    for group in (reading, others):
        if group.objects:
            yield group


@dataclass(frozen=True, slots=True)
class CheckedContents:
    """The result of one task."""

    problems: Sequence[Problem]
    unread: Sequence[str]
    """The keys of objects that could not be decoded, because the process lacks a package for it."""


@dataclass(frozen=True, slots=True)
class ContentTask:
    """Checks the contents of the objects of a group. Picklable."""

    root: ObjectStore
    groups: Sequence[Sequence[str]]
    formats: Mapping[str, Collection[str]]

    def __call__(self, index: int) -> CheckedContents:
        """Read the objects of the group of this number."""
        keys = self.groups[index]
        problems: list[Problem] = []
        unread: list[str] = []
        for start in range(0, len(keys), _READ_AT_ONCE):
            part = keys[start : start + _READ_AT_ONCE]
            for key, result in zip(part, self.root.gather(*(partial(self._check, key) for key in part)), strict=True):
                if isinstance(result, Problem):
                    problems.append(result)
                elif not result:
                    unread.append(key)
        return CheckedContents(problems, unread)

    def _check(self, key: str) -> Problem | bool:
        """Return the problem of an object, or whether it could be read."""
        try:
            return content_problem(self.root, key, self.formats) or True
        except (ModuleNotFoundError, UnknownFormat):
            return False


def is_named_by_content(key: str) -> bool:
    """Return whether the name of an object is a hash of its content."""
    return key.startswith(f"{TREES}/") or digest_of(key) is not None


def content_problem(root: ObjectStore, key: str, formats: Mapping[str, Collection[str]]) -> Problem | None:
    """Read an object, and compare it with its name or decode it by the format of its dataset."""
    digest = digest_of(key)
    try:
        if not is_named_by_content(key):
            return _dataset_problem(root, key, formats)
        if digest is not None:
            if _sha256(root, key) == digest:
                return None
            return Problem("corrupt", key, "its bytes do not match its name: restore it from a backup")
        table = read_sstable(root.get(key))
        named = {name: str(value) for name, value in table.properties.items() if name not in AFTER_HASHING}
        if table_id(table.pairs, named) == key.removeprefix(f"{TREES}/"):
            return None
        return Problem("corrupt", key, "its records do not match its name: restore it from a backup")
    except UnknownFormat:
        # Another process may have the package.
        raise
    except NotFound:
        return Problem("missing", key, "a live state refers to it, but it is missing: restore it from a backup")
    except LakeError as error:
        return Problem("corrupt", key, str(error))


def _problem_here(root: ObjectStore, key: str, formats: Mapping[str, Collection[str]]) -> Problem | None:
    """Read an object in this process, which is the last that may have the package of its format."""
    try:
        return content_problem(root, key, formats)
    except UnknownFormat as error:
        return Problem("corrupt", key, str(error))


def _dataset_problem(root: ObjectStore, key: str, formats: Mapping[str, Collection[str]]) -> Problem | None:
    path = path_above(key, formats)
    if path is None:
        return None
    for name in formats[path]:
        rules, inner = dataset_format(name), key.removeprefix(f"{path}/")
        if rules.key_class(inner) is KeyClass.UNIQUE:
            detail = rules.content_problem(FolderStore(root, path), inner)
            return None if detail is None else Problem("corrupt", key, f"{detail}: restore it from a backup")
    return None


def _sha256(root: ObjectStore, key: str) -> str:
    """Return the hash of an object, which is read part by part."""
    digest, start = sha256(), 0
    while True:
        part = root.get(key, start, start + PART)
        digest.update(part)
        start += PART
        if start >= part.size:
            return digest.hexdigest()
