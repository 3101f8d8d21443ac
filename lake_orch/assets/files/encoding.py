"""Encodes Python objects as the bytes of a file, and decodes them: bytes, text, JSON, and pickle if it is allowed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_origin

from lake_orch.errors import UnsupportedData

Format: TypeAlias = Literal["bytes", "text", "json", "pickle"]

EXTENSIONS: Mapping[Format, str] = {"bytes": ".bin", "text": ".txt", "json": ".json", "pickle": ".pickle"}

JSON_TYPES = (dict, list, bool, int, float)
_WHY_NO_PICKLE = (
    "pickle is not allowed here: anyone who can write the file could make its reader run any code, "
    "and it may not load with other versions of Python or of a library"
)


def encode(value: object, name: str, *, allow_pickle: bool) -> tuple[Format, bytes]:
    """Encode a value by its type. Return its format and its bytes.

    Raises UnsupportedData for a value that only pickle can encode, unless pickle is allowed.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if isinstance(value, str):
        return "text", value.encode()
    if isinstance(value, JSON_TYPES):
        problem = _json_problem(value)
        if problem is None:
            return "json", json.dumps(value, ensure_ascii=False, indent=1).encode()
        if not allow_pickle:
            raise UnsupportedData(f"{name} is not valid JSON: {problem}. Convert it, or return text or bytes")
    if not allow_pickle:
        kind = type(value)
        raise UnsupportedData(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, and {_WHY_NO_PICKLE}. "
            "Return bytes, text, or what JSON can hold; or set allow_pickle=True on the FileIOManager"
        )
    return "pickle", pickle.dumps(value)


def decode(data: bytes, extension: str, annotation: object, name: str, *, allow_pickle: bool) -> Any:
    """Decode a file's bytes to the type that the parameter is annotated with. Without one, the extension decides.

    Raises UnsupportedData for pickle that is not allowed, and for bytes that are invalid in their format.
    """
    kind = get_origin(annotation) or annotation
    format_name = next((name for name, known_extension in EXTENSIONS.items() if known_extension == extension), None)
    if kind is bytes:
        return bytes(data)
    if format_name is None:
        format_name = "text" if kind is str else "json" if kind in JSON_TYPES else "bytes"
    elif kind is str and format_name == "json":
        format_name = "text"
    if format_name == "bytes":
        return bytes(data)
    if format_name == "pickle":
        if not allow_pickle:
            raise UnsupportedData(
                f"{name} is a pickle, and {_WHY_NO_PICKLE}. If you trust its writers, set allow_pickle=True"
            )
        return pickle.loads(data)
    try:
        text = bytes(data).decode()
        return text if format_name == "text" else json.loads(text)
    except ValueError as error:
        raise UnsupportedData(
            f"{name} is not valid {format_name}: {error}. Annotate the parameter as bytes to look at it"
        ) from None


def _json_problem(value: object, path: str = "") -> str | None:
    """Describe what JSON would lose or change in a value. Return None if JSON preserves the value."""
    if value is None or isinstance(value, bool | int | str):
        return None
    if isinstance(value, float):
        return None if value - value == 0 else f"{path or 'it'} is {value}"
    if isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                return f"{path or 'it'} has the key {key!r}, which is not text"
            if (problem := _json_problem(child, f"{path}[{key!r}]")) is not None:
                return problem
        return None
    if isinstance(value, list):
        return next(
            (
                problem
                for index, child in enumerate(value)
                if (problem := _json_problem(child, f"{path}[{index}]")) is not None
            ),
            None,
        )
    return f"{path or 'it'} is a {type(value).__qualname__}"
