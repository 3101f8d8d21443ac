"""How an asset's text becomes a note, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toy_note import Note

from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import AssetFormat, AssetInput, AssetOutput, AssetRead, AssetWrite, Written


@dataclass(frozen=True, slots=True)
class NoteAssets(AssetFormat):
    """Notes. The fields of the class are the options of an IO manager."""

    format = "note"

    signature: str = ""

    def accepts(self, value: object) -> bool:
        return isinstance(value, str)

    def loads(self, annotation: object) -> bool:
        return annotation in (str, Note)

    def write(self, value: Any, output: AssetOutput) -> NoteWrite:
        return NoteWrite(output.path, value + self.signature)

    def read(self, request: AssetInput) -> NoteRead:
        return NoteRead()


@dataclass(frozen=True, slots=True)
class NoteWrite(AssetWrite[None]):
    path: str
    text: str

    def to(self, workspace: Workspace) -> None:
        note: Note | None = workspace.find(self.path, "note")
        if note is None:
            workspace.create(self.path, "note", self.text)
        elif note.text != self.text:
            note.write(self.text)

    def written(self, result: None, workspace: Workspace) -> Written:
        version = hashlib.sha256(self.text.encode()).hexdigest()
        return Written.of_dataset(workspace, self.path, f"{len(self.text)} characters", version)


class NoteRead(AssetRead):
    def load(self, dataset: Note | None, keys: Sequence[str] | None, annotation: object) -> Any:
        assert dataset is not None
        return dataset if annotation is Note else dataset.text
