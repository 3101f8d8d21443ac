"""The errors of expressions: one for text that is refused, and one for a row that fails."""

from __future__ import annotations

from lake_core.errors import LakeError


class InvalidExpression(LakeError):
    """SQL text that does not parse, names an unknown column, or uses a feature that is not supported."""


class EvaluationFailed(LakeError):
    """An expression fails for a row: overflow, division by zero, or a cast of an invalid value."""


def short(text: str) -> str:
    """Quote a text for an error message, cut to 120 characters."""
    return repr(text if len(text) <= 120 else f"{text[:117]}…")
