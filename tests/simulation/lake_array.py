"""An array of a lake in a history: cells that are counted up or cleared, and cells that are appended.

Through the session itself, not through Zarr: its event loop is one for all processes, and waits with each of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from lake_core.icechunk import Repository, RepositoryConfig
from lake_core.icechunk.session_state import SessionState
from lake_core.lake.state.writable_state import WritableState
from tests.simulation.lake_actions import ARRAY, FIRST_ROWS, Change

_PATH = "/v"
_CLEARED = -1


def create_array(session: WritableState, *, spec_version: int) -> None:
    """Create the repository, with an array of one cell a chunk."""
    config = RepositoryConfig(inline_chunk_threshold_bytes=0)
    repository = session.create_icechunk(ARRAY, config=config, spec_version=spec_version)
    repository.session.set_metadata("/", json.dumps({"zarr_format": 3, "node_type": "group"}).encode())
    repository.session.set_metadata(_PATH, _document(FIRST_ROWS))


def change_array(session: WritableState, change: Change, rows: Sequence[int]) -> None:
    """Do to the array what a change of a work says. `rows`: the ids that it adds."""
    state = session.icechunk(ARRAY).session
    match change.kind:
        case "add":
            length = state.array(_PATH).shape[0]
            state.set_metadata(_PATH, _document(length + len(rows)))
            for number, row in enumerate(rows):
                _write(state, length + number, row)
        case "count":
            _write(state, change.number, _value(state, change.number) + 1)
        case "delete":
            _write(state, change.number, _CLEARED)


def array_contents(repository: Repository) -> Counter[tuple[int, int]]:
    """Return the cells as a table would have them: the first ones by their index, and appended ones by their value."""
    state = repository.readonly_session("main")
    values = [_value(state, index) for index in range(state.array(_PATH).shape[0])]
    first = [(index, value) for index, value in enumerate(values[:FIRST_ROWS]) if value != _CLEARED]
    return Counter([*first, *((value, 0) for value in values[FIRST_ROWS:])])


def _document(length: int) -> bytes:
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length],
            "data_type": "int64",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }
    ).encode()


def _write(state: SessionState, index: int, value: int) -> None:
    state.write_chunk(_PATH, (index,), value.to_bytes(8, "little", signed=True))


def _value(state: SessionState, index: int) -> int:
    reference = state.reference(state.array(_PATH), (index,))
    return 0 if reference is None else int.from_bytes(state.fetch(reference), "little", signed=True)
