"""Code that is sent to Spark's executors by value. They need pyarrow and fsspec, not this package."""

from __future__ import annotations

import functools
import io
import pickle
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException

import lake_core
from lake_core import errors
from lake_core.dataset import format_releases
from lake_core.delta import errors as delta_errors
from lake_core.errors import LakeError, StoreError
from lake_core.expression import errors as expression_errors
from lake_core.graveler import errors as graveler_errors
from lake_core.lake import errors as lake_errors
from lake_core.spark import errors as spark_errors
from lake_core.spark.errors import SparkJobFailed, UnreachableStore
from lake_core.version import __version__

try:
    from py4j.protocol import Py4JJavaError
except ImportError:  # PySpark is installed without a JVM, as a client of Connect
    JOB_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    JOB_ERRORS = (PySparkException, Py4JJavaError)
"""The errors that PySpark raises for a failed job.

They are its own errors, and in classic Spark also those of the JVM for which it has no class, such as lost executors.
"""

_ERRORS = (errors, delta_errors, expression_errors, spark_errors, lake_errors, graveler_errors)
"""The modules with the errors that tasks raise. Pools have more: importing them takes long."""
_MESSAGE_ALONE = (LakeError.__init__, StoreError.__init__)
"""How errors are initialized that need no more than a message."""

_PICKLING = threading.Lock()
_RAISED = re.compile(r"^(?:lake_core\.[\w.]+\.)(\w+): (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _Pickler(cloudpickle.Pickler):
    """A pickler that also pickles cached functions, cached properties and `struct.Struct`, unlike cloudpickle.

    It keeps how this package's functions are pickled. For each of them, cloudpickle looks through all imported modules.
    """

    _kept: ClassVar[dict[FunctionType, Any]] = {}
    _globals_ref: ClassVar[dict[int, dict[str, Any]]] = {}
    """The globals that unpickled functions of a module share, by the id of the module's own."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self.globals_ref = dict(self._globals_ref)

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, FunctionType) and _is_ours(obj) and "<locals>" not in obj.__qualname__:
            reduced = self._kept.get(obj)
            if reduced is None or not _has_globals(obj, reduced[2][1]["__globals__"]):
                reduced = self._kept[obj] = super().reducer_override(obj)  # type: ignore[no-untyped-call]
                self._globals_ref[id(obj.__globals__)] = self.globals_ref[id(obj.__globals__)]
            return reduced
        if isinstance(obj, struct.Struct):
            return struct.Struct, (obj.format,)
        if isinstance(obj, functools._lru_cache_wrapper) and _is_ours(obj):
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        # Before Python 3.12, it has a lock, which cannot be pickled.
        if isinstance(obj, functools.cached_property):
            return _cached_property, (obj.func, obj.attrname)
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def _is_ours(function: FunctionType | functools._lru_cache_wrapper[Any]) -> bool:
    # A function that was made by `exec` may have no module.
    return (function.__module__ or "").partition(".")[0] == lake_core.__name__


def _has_globals(function: FunctionType, values: Mapping[str, Any]) -> bool:
    """Return whether the globals that a function uses are still these."""
    return all(function.__globals__.get(name) is value for name, value in values.items())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Callable[[Any], Any], name: str | None) -> functools.cached_property[Any]:
    """Return a cached property with its name. An unpickled class does not set the name."""
    cached = functools.cached_property(function)
    cached.attrname = name
    return cached


def by_value(obj: object) -> bytes:
    """Pickle a function or other object to bytes that can be unpickled without this package.

    Raises UnreachableStore for an object with a store that exists only in this process.
    """
    with _PICKLING:
        cloudpickle.register_pickle_by_value(lake_core)  # type: ignore[no-untyped-call]
        try:
            with io.BytesIO() as buffer:
                _Pickler(buffer).dump(obj)  # type: ignore[no-untyped-call]
                return buffer.getvalue()
        except (TypeError, pickle.PicklingError) as error:
            raise _unreachable(error) from None
        finally:
            cloudpickle.unregister_pickle_by_value(lake_core)  # type: ignore[no-untyped-call]


def _unreachable(error: Exception) -> UnreachableStore:
    return UnreachableStore(
        f"the store cannot be sent to Spark's executors ({error}): keep what Spark is to read in files or in a bucket"
    )


def batch_function(function: BatchFunction) -> BatchFunction:
    """Return a function for `mapInArrow` that contains `function` by value."""
    payload = by_value(function)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        yield from pickle.loads(payload)(batches)

    # If this package is installed, Spark would pickle `run` as a name to import. This makes it pickle by value.
    run.__module__ = "__main__"
    return run


def installed_releases() -> dict[str, str]:
    """Return the installed releases of this package, and of the formats of datasets."""
    return {**format_releases(), "": __version__}


def named_function(task: Callable[[int], object]) -> BatchFunction:
    """Return a function for `mapInArrow` that calls a task, pickled by name, for each number.

    The executors need the same releases of this package and of the formats: a job fails on others.

    Raises UnreachableStore for a task that cannot leave this process.
    """
    try:
        payload, releases = pickle.dumps(task), installed_releases()
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise _unreachable(error) from None

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle

        import pyarrow

        from lake_core.spark.executor import installed_releases

        if installed_releases() != releases:
            raise RuntimeError(f"the executors have other releases: {installed_releases()} instead of {releases}")
        unpickled = pickle.loads(payload)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [
                    pyarrow.array([number], pyarrow.int64()),
                    pyarrow.array([pickle.dumps(unpickled(number))], pyarrow.binary()),
                ]
                yield pyarrow.RecordBatch.from_arrays(columns, names=["number", "result"])

    run.__module__ = "__main__"
    return run


def table_function(function: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], pa.Table]:
    """Return a function for a group's `applyInArrow` that contains `function` by value."""
    payload = by_value(function)

    # `run` has no annotations: Spark resolves them to see whether it takes a table or an iterator.
    def run(rows):  # type: ignore[no-untyped-def]
        import pickle

        return pickle.loads(payload)(rows)

    run.__module__ = "__main__"
    return run


@contextmanager
def our_errors() -> Iterator[None]:
    """Raise the error of this package that made a job fail in the `with` block, or SparkJobFailed.

    An error of a worker is raised without the JVM's trace, which does not explain it. The worker's own trace is added
    to SparkJobFailed as a note.
    """
    try:
        yield
    except JOB_ERRORS as error:
        ours = lake_error(error)
        if isinstance(ours, SparkJobFailed) and not getattr(ours, "__notes__", None):
            raise ours from error
        raise ours from None


def named_error(name: str, message: str) -> LakeError:
    """Return an error of this package by the name of its class.

    Return SparkJobFailed if there is no such class, or if it takes more than a message.
    """
    from lake_core.pool import errors as pool_errors

    kind = next((getattr(module, name) for module in (*_ERRORS, pool_errors) if hasattr(module, name)), None)
    if isinstance(kind, type) and issubclass(kind, LakeError) and kind.__init__ in _MESSAGE_ALONE:
        return kind(message)
    return SparkJobFailed(f"{name}: {message}")


def lake_error(error: Exception) -> LakeError:
    """Return this package's error that made a job fail in an executor, or SparkJobFailed."""
    text = str(error)
    raised_here = _RAISED.findall(text)
    if raised_here:
        return named_error(*raised_here[-1])
    raised = list(re.finditer(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Invalid)\w*: .+)$", text, re.MULTILINE))
    if raised:
        # This is the last line of the worker's traceback.
        failed = SparkJobFailed(f"a Spark job failed: {raised[-1][1][:300]}")
        start = text.rfind("Traceback (most recent call last)", 0, raised[-1].start())
        if start >= 0:
            failed.add_note(text[start : raised[-1].end()])
        return failed
    causes = _CAUSE.findall(text) or [line for line in text.splitlines() if line.strip()][:1] or [type(error).__name__]
    return SparkJobFailed(f"a Spark job failed: {causes[-1][:300]}")
