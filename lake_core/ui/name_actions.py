"""Creating and deleting branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.errors import RefNotFound
from lake_core.ui.action_plan import Plan, commit_at, differences, needed, value
from lake_core.ui.errors import RefusedRequest
from lake_core.ui.page import title_of, url

if TYPE_CHECKING:
    from lake_core.ui.visit import Visit

_UNREACHED = (
    "Commits that no other branch, tag or session reaches are kept for the retention of the lake, and then collected."
)


def create_tag_plan(visit: Visit) -> Plan:
    """Say what the tag will name."""
    return _create_plan(visit, "tag", "It always will: a tag does not move, and its name is never used again.")


def create_tag(visit: Visit) -> str:
    """Create the tag at the commit that the page showed."""
    return url(f"/commit/{visit.lake.create_tag(needed(visit, 'name'), at=visit.form['seen'])}")


def create_branch_plan(visit: Visit) -> Plan:
    """Say what the branch will begin with."""
    return _create_plan(visit, "branch", "Nothing is copied, and no other branch changes.")


def create_branch(visit: Visit) -> str:
    """Create the branch at the commit that the page showed."""
    name = needed(visit, "name")
    visit.lake.create_branch(name, at=visit.form["seen"])
    return url("/history", ref=name)


def delete_branch_plan(visit: Visit) -> Plan:
    """Say which commits only the branch has."""
    name = needed(visit, "name")
    head = visit.refs.branch(name)
    main = visit.lake.repository.format.branch
    problem = f"{name} is checked out: it cannot be deleted" if name == main else ""
    return Plan(
        f"Delete branch {name}",
        f"Delete {name}",
        [f"The name {name} goes. {_UNREACHED}", f"Below is what it has and {main} does not, or otherwise."],
        {"name": name},
        head,
        url("/history", ref=name),
        is_dangerous=True,
        problem=problem,
        details=None if problem else differences(visit, main, name),
        differs=f"From {main} to {name}",
    )


def delete_branch(visit: Visit) -> str:
    """Delete the branch if it is where the page showed it."""
    name = needed(visit, "name")
    if not visit.lake.delete_branch(name, at=visit.form["seen"]):
        raise RefusedRequest(f"{name} has moved in the meantime: it was not deleted")
    return "/"


def delete_tag_plan(visit: Visit) -> Plan:
    """Say what the tag names, and that its name is gone for good."""
    name = needed(visit, "name")
    commit = visit.refs.tags().get(name)
    if commit is None:
        raise RefNotFound(f"the tag {name!r} does not exist")
    return Plan(
        f"Delete tag {name}",
        f"Delete {name}",
        [
            f"The name {name}, of commit {commit[:12]}, goes for good: no tag and no branch can have it again.",
            _UNREACHED,
        ],
        {"name": name},
        commit,
        url("/history", ref=name),
        is_dangerous=True,
    )


def delete_tag(visit: Visit) -> str:
    """Delete the tag. It names what the page showed, as a tag does not move."""
    visit.lake.delete_tag(needed(visit, "name"))
    return "/"


def _create_plan(visit: Visit, what: str, sentence: str) -> Plan:
    commit = commit_at(visit, "at", "main").commit
    return Plan(
        f"Create a {what} at {commit.id[:12]}",
        f"Create the {what}",
        [f"The {what} names the commit “{title_of(commit.message)}”. {sentence}"],
        {"at": commit.id},
        commit.id,
        url(f"/commit/{commit.id}"),
        {"name": ("Name", value(visit, "name"))},
        looks={} if visit.is_order else {"at": ("At the branch, tag, commit or time", value(visit, "at", "main"))},
    )
