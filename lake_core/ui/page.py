"""Pages: a template with its values, or the same as JSON."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lake_core.readable import count_of, readable_bytes
from lake_core.report.commits import run_of
from lake_core.report.query import quoted
from lake_core.report.values import date_text, plain
from lake_core.ui.settings import HIDDEN, is_secret_name, without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_TEXT = 300
"""How many letters of a value a cell shows."""
_LONGEST_TITLE = 4000
"""How many letters its title shows."""
_LONGEST_LINE = 160
"""How many letters of a message a list and a heading show."""
_SHOWN_BYTES = 16
"""How many bytes of a binary value a cell shows."""
_DAGSTER_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_TEXT = 24
"""Values of at most so many letters stay on one line."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a handler returns."""

    template: str
    values: Mapping[str, Any]
    json: Any
    """What the command with `--json` prints. None if no command shows the same."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    has_json: bool = False
    """Whether there is JSON if it is asked for, although it was not made now."""
    is_data: bool = False
    """Whether the JSON is rows, whose names are those of columns, and not of properties."""


@cache
def environment() -> Environment:
    """Return the templates, in which every value is escaped and no secret of a URL is shown."""
    made = Environment(
        loader=PackageLoader("lake_core.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    filters: Mapping[str, Callable[..., Any]] = {
        "time": time_text,
        "short": short_id,
        "bytes": lambda size: "unknown" if size is None else readable_bytes(int(size)),
        "number": lambda number: "?" if number is None else f"{number:,}",
        "count": count_of,
        "cell": cell,
        "field": escape,  # what a form sends back must be what was sent
        "ago": ago,
        "title": title_of,
        "run": run_of,
        "shortrun": short_run,
        "quoted": quoted,
        "fact": lambda fact: readable_bytes(fact.value) if fact.unit == "bytes" else _number(fact.value),
        "property": lambda value, name: HIDDEN if is_secret_name(str(name)) else value,
    }
    made.filters.update(filters)
    made.tests["differs"] = differs
    made.globals.update(url=url, now=lambda: dt.datetime.now(dt.UTC))
    return made


def _shown(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return without_secrets(value)
    return "" if value is None else value


def _number(value: Any) -> Any:
    return f"{value:,}" if isinstance(value, int) else value


def url(path: str, /, **parameters: Any) -> str:
    """Return the address of a page. Parameters that are None, empty or false are left out."""
    kept = {name.rstrip("_"): value for name, value in parameters.items() if value not in (None, "", False)}
    query = urlencode(kept, doseq=True)
    return quote(path, safe="/") + (f"?{query}" if query else "")


def title_of(message: str) -> str:
    """Return the first line of a message, or its beginning if it is long."""
    line = next((line for line in message.splitlines() if line.strip()), "(no message)")
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE].rstrip() + "…"


def short_id(id: str) -> str:
    """Return the beginning of a commit's id."""
    return id[:12]


def short_run(id: str) -> str:
    """Return the beginning of a run's id if it is one of Dagster's, else all of it: others begin alike."""
    return id[:8] if _DAGSTER_RUN.fullmatch(id) else id


def differs(value: Any, other: Any) -> bool:
    """Return whether two values are not the same. NaN is the same as NaN, and -0.0 is not 0.0."""
    return repr(value) != repr(other)


def time_text(instant: dt.datetime | str | None) -> Markup:
    """Return a time as an element that says it in UTC. The page's script adds the reader's own time as a title."""
    if instant is None:
        return Markup("")
    if isinstance(instant, str):
        return Markup(escape(instant))
    text = date_text(instant).removesuffix("+00:00")
    return Markup('<time datetime="{}">{}</time>').format(instant.isoformat(), text)


def ago(instant: dt.datetime) -> str:
    """Return how long ago, or in how long, something is."""
    seconds = (dt.datetime.now(dt.UTC) - instant).total_seconds()
    size = abs(seconds)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if size >= length:
            text = count_of(int(size // length), unit)
            break
    else:
        text = "moments"
    return f"{text} ago" if seconds >= 0 else f"in {text}"


def cell(value: Any) -> Markup:
    """Return a value as the content of a cell: null and long texts can be told from what they look like."""
    if value is None:
        return Markup('<span class="null">null</span>')
    # A long list or binary is cut before it becomes text: its title shows no more.
    short = value[:_LONGEST_TITLE] if isinstance(value, list | bytes) else value
    text = value_text(short, _LONGEST_TITLE if isinstance(value, bytes) else _SHOWN_BYTES)
    if text == "":
        return Markup('<span class="null">empty</span>')
    length = len(text)
    text = without_secrets(text[: 2 * _LONGEST_TITLE])
    if isinstance(value, bytes) and len(value) > _SHOWN_BYTES:
        begin, ending = text[: 2 + 2 * _SHOWN_BYTES], f"… {count_of(len(value), 'byte')}"
        return _cut(text, begin, ending)
    if len(text) > _LONGEST_TEXT:
        is_counted = isinstance(value, str)
        return _cut(text, text[:_LONGEST_TEXT], f"… {count_of(length, 'letter')}" if is_counted else "…")
    return Markup('<span class="{}">{}</span>').format("nowrap" if len(text) <= _SHORT_TEXT else "broad", text)


def _cut(text: str, begin: str, ending: str) -> Markup:
    """Return the beginning of a value and what its ending says; its title shows more."""
    return Markup('<span class="long" title="{}">{}</span><span class="muted nowrap">{}</span>').format(
        text[:_LONGEST_TITLE], begin, ending
    )


def value_text(value: Any, most_bytes: int | None = None) -> str:
    """Return a value as text, of each binary in it at most `most_bytes` and what its ending says. None for all."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        is_cut = most_bytes is not None and len(value) > most_bytes
        return "0x" + value[:most_bytes].hex() + (f"… {count_of(len(value), 'byte')}" if is_cut else "")
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, str)):
        return json.dumps(plain(_jsonable(value, most_bytes)), ensure_ascii=False)
    return str(value)


def _jsonable(value: Any, most_bytes: int | None) -> Any:
    if isinstance(value, bytes):
        return value_text(value, most_bytes)
    if isinstance(value, decimal.Decimal):
        return value_text(value)
    if isinstance(value, Mapping):
        return {str(name): _jsonable(each, most_bytes) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each, most_bytes) for each in value]
    return value


def render(page: Page, common: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    return environment().get_template(page.template).render(**common, **page.values)


def json_text(value: Any, *, is_data: bool = False) -> str:
    """Return the JSON of a page, in the form in which commands print it. Rows are not searched for secrets by name."""
    return json.dumps(_without_secrets(plain(value), is_data), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _without_secrets(value: Any, is_data: bool) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN
            if not is_data and is_secret_name(name) and isinstance(each, str)
            else _without_secrets(each, is_data)
            for name, each in value.items()
        }
    return [_without_secrets(each, is_data) for each in value] if isinstance(value, list) else value
