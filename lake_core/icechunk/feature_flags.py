"""Feature flags of a repository of version 2. They tell its clients not to do something, and are all on by default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake_core.icechunk.errors import FeatureDisabled, UnknownFeatureFlag

if TYPE_CHECKING:
    from lake_core.icechunk.repo_info import RepoInfo

MOVE_NODE, CREATE_TAG, DELETE_TAG = 3, 4, 5
_NAMES = {MOVE_NODE: "move_node", CREATE_TAG: "create_tag", DELETE_TAG: "delete_tag"}


@dataclass(frozen=True, slots=True)
class FeatureFlag:
    """A feature that a repository can turn off."""

    id: int
    name: str
    default_enabled: bool
    setting: bool | None
    """None where the repository has the default."""

    @property
    def enabled(self) -> bool:
        """Return whether the feature is on."""
        return self.default_enabled if self.setting is None else self.setting


def feature_flags(info: RepoInfo) -> list[FeatureFlag]:
    """Return the known flags. Those that only later clients know are left out."""
    return [FeatureFlag(number, name, True, _setting(info, number)) for number, name in _NAMES.items()]


def with_flag(info: RepoInfo, number: int, setting: bool | None) -> RepoInfo:
    """Return a state in which a flag is set, or has its default again."""
    enabled, disabled = (
        {*(flags or ())} - {number} | ({number} if setting is value else set())
        for flags, value in ((info.enabled_flags, True), (info.disabled_flags, False))
    )
    return replace(
        info,
        enabled_flags=tuple(sorted(enabled)) if enabled or info.enabled_flags is not None else None,
        disabled_flags=tuple(sorted(disabled)) if disabled or info.disabled_flags is not None else None,
    )


def flag_number(name: str) -> int:
    """Return the number of a flag. Raises UnknownFeatureFlag."""
    numbers = {name: number for number, name in _NAMES.items()}
    if name not in numbers:
        raise UnknownFeatureFlag(f"there is no feature flag {name!r}: the flags are {', '.join(numbers)}")
    return numbers[name]


def check_enabled(info: RepoInfo, number: int) -> None:
    """Raise FeatureDisabled if a feature is off."""
    if _setting(info, number) is False:
        raise FeatureDisabled(
            f"the feature {_NAMES[number]} is disabled in this repository: "
            f"enable it with set_feature_flag({_NAMES[number]!r}, True)"
        )


def _setting(info: RepoInfo, number: int) -> bool | None:
    if number in (info.enabled_flags or ()):
        return True
    return False if number in (info.disabled_flags or ()) else None
