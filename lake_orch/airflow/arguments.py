"""The arguments of tasks: references to datasets, which are loaded as the parameters are annotated."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import unwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from lake_orch.airflow.dataset import LakeDataset, LakeFile, dataset_class
from lake_orch.airflow.reading import check_visible, load_dataset
from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_REFERENCE = frozenset({"lake", "branch", "format", "path", "session", "commit", "rows"})
"""The keys of the XCom of a task that returned into a dataset."""


def reference(
    dataset: LakeDataset, branch: str, session: str | None, commit: str | None, rows: int | None
) -> dict[str, Any]:
    """Return the XCom of a task that returned into a dataset: a reference to it, and none of its rows."""
    return {
        "lake": dataset.connection,
        "branch": branch,
        "format": dataset.format,
        "path": dataset.path,
        "session": session,
        "commit": commit,
        "rows": rows,
    }


def loaded_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a task's function, with each dataset loaded as its parameter is annotated.

    A parameter without an annotation gets the reference itself, as does one of a table that is annotated as `dict`, and
    one that is annotated as a dataset, such as `LakeTable`, gets that.
    """
    return {name: _loaded(function, name, value) for name, value in arguments.items()}


def _loaded(function: Callable[..., Any], name: str, value: object) -> Any:
    dataset = _dataset_of(value)
    annotation = None if dataset is None else _annotation(function, name)
    if dataset is None or annotation is None:
        return value
    if annotation is dict and not isinstance(dataset, LakeFile):  # a reference; a file may hold an object of JSON
        return value
    for session in _unpublished_sessions(value):
        check_visible(dataset, session)
    if isinstance(annotation, type) and issubclass(annotation, LakeDataset):
        return dataset
    return load_dataset(dataset, annotation, {}, subject=f"parameter {name!r}")


def _annotation(function: Callable[..., Any], name: str) -> object:
    """Return the type that a parameter is annotated with, or None.

    Others may name what is imported only in the function, so only this one is looked up. Raises InvalidDefinition.
    """
    function = unwrap(function)
    annotation = function.__annotations__.get(name)
    if not isinstance(annotation, str):
        return annotation
    try:
        return get_type_hints(SimpleNamespace(__annotations__={name: annotation}), function.__globals__)[name]
    except NameError as error:
        raise InvalidDefinition(
            f"parameter {name!r} of {function.__name__} is annotated as {annotation!r}, and {error.name!r} is not "
            "imported in its module: import it at the top of the DAG file, or load the dataset in the function"
        ) from None


def _dataset_of(value: object) -> LakeDataset | None:
    """Return the dataset that a value names: itself, the XCom of one task, or those of all instances of one."""
    if isinstance(value, LakeDataset):
        return value
    if isinstance(value, dict) and value.keys() == _REFERENCE:
        return _referenced(value)
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Sequence):
        return None
    datasets = {_dataset_of(each) for each in value[:]} if len(value) else set()
    return datasets.pop() if len(datasets) == 1 else None


def _referenced(xcom: Mapping[str, Any]) -> LakeDataset:
    return dataset_class(xcom["format"])(xcom["path"], connection=xcom["lake"], branch=xcom["branch"])


def _unpublished_sessions(value: object) -> set[str]:
    """Return the sessions into which the tasks wrote that a value refers to, and which they did not publish."""
    references: Sequence[object] = value if isinstance(value, Sequence) else [value]
    staged = (each for each in references if isinstance(each, dict) and each.get("commit") is None)
    return {each["session"] for each in staged if each.get("session") is not None}
