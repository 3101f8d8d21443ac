"""Acting on sessions, branches and tags: a page that says what will happen, and the form that does it.

Each form names the state that its page showed. If that has moved in the meantime, nothing is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from lake_core.errors import StoreUnavailable
from lake_core.lake.errors import Conflict, InvalidRef, RefExists, UnexpectedHead
from lake_core.ui.branch_actions import cherry_pick, cherry_pick_plan, merge, merge_plan, revert, revert_plan
from lake_core.ui.errors import InvalidRequest, NoSuchPage, ReadOnlyPages, RefusedRequest
from lake_core.ui.name_actions import (
    create_branch,
    create_branch_plan,
    create_tag,
    create_tag_plan,
    delete_branch,
    delete_branch_plan,
    delete_tag,
    delete_tag_plan,
)
from lake_core.ui.page import Page
from lake_core.ui.session_actions import abandon, abandon_plan, fork, fork_plan, publish, publish_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response

    from lake_core.ui.action_plan import Plan
    from lake_core.ui.visit import Visit


def action_page(visit: Visit) -> Page | Response:
    """Show what an action will do; if the form was sent, do it."""
    if not visit.settings.writes:
        raise ReadOnlyPages("these pages only read: start them with `lake ui --write` to act on the lake")
    kind = visit.path["kind"]
    if kind not in _ACTIONS:
        raise NoSuchPage(f"there is no action {kind!r}: there are {', '.join(_ACTIONS)}")
    plan_of, run = _ACTIONS[kind]
    plan = plan_of(visit)
    if not visit.is_order:
        if visit.get("format") == "json" and plan.refusal is not None:
            raise plan.refusal
        return _shown(kind, plan)
    if visit.form.get("seen", "") != plan.seen:
        raise RefusedRequest(
            "what the page showed has changed in the meantime, or the form was sent before: nothing was done now. "
            "Look at it again"
        )
    if plan.problem:
        raise InvalidRequest(plan.problem)
    try:
        return RedirectResponse(run(visit), 303)
    except (StoreUnavailable, OSError) as error:
        raise StoreUnavailable(
            f"{error}. Whether it was done is not known: look at the lake again. The same form does it once at most"
        ) from None
    except UnexpectedHead as error:
        raise RefusedRequest(f"{error}. Nothing was done") from None
    except Conflict as error:
        return _shown(kind, plan, 409, f"{error.explanation} {error.remedy}")
    except (RefExists, InvalidRef) as error:
        return _shown(kind, plan, 400, str(error))


def _shown(kind: str, plan: Plan, status: int = 200, refusal: str = "") -> Page:
    details = {"paths": [], "files": [], "changes": [], "before": "", "after": ""} | dict(plan.details or {})
    values = {"kind": kind, "plan": plan, "refusal": refusal, "preview": plan.preview, **details}
    return Page("action.html", values, plan.preview, status)


_ACTIONS: Mapping[str, tuple[Callable[[Visit], Plan], Callable[[Visit], str]]] = {
    "publish": (publish_plan, publish),
    "abandon": (abandon_plan, abandon),
    "fork": (fork_plan, fork),
    "merge": (merge_plan, merge),
    "revert": (revert_plan, revert),
    "cherry-pick": (cherry_pick_plan, cherry_pick),
    "tag": (create_tag_plan, create_tag),
    "branch": (create_branch_plan, create_branch),
    "delete-branch": (delete_branch_plan, delete_branch),
    "delete-tag": (delete_tag_plan, delete_tag),
}
