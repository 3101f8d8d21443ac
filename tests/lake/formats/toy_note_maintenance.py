"""Maintenance of notes: spaces that nobody needs are taken out."""

from __future__ import annotations

from typing import Any

from toy_note import Note

from lake_orch.assets.maintenance import Finding, HealthCheck, Maintenance, TaskContext, rewrite_dataset


def squeeze(context: TaskContext) -> dict[str, Any]:
    """Take out spaces that follow others."""
    text = context.dataset().text
    short = " ".join(text.split())
    if short != text and not context.config.dry_run:
        rewrite_dataset(context, f"Squeeze {context.target.path}", lambda note: note.write(short))
    return {"lake/spaces": len(text) - len(short), "lake/due": short != text}


def spaces(note: Note) -> int:
    return len(note.text) - len(" ".join(note.text.split()))


def none_left(health: int, limits: object) -> Finding:
    return Finding(health == 0, health, 0)


NOTES = Maintenance(
    datasets="notes",
    kind="note",
    tasks={"squeeze": squeeze},
    measure=lambda note, target: spaces(note),
    metadata=lambda health: {"lake/spaces": health},
    checks=[HealthCheck("spaces", "run squeeze", "Spaces that follow others", none_left)],
)
