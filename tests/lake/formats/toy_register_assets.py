"""How files of a landing zone become lines of a register."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from toy_register import Register

from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import (
    AssetFormat,
    AssetInput,
    AssetLanding,
    AssetOutput,
    AssetRead,
    AssetWrite,
    Batch,
    Written,
)
from lake_orch.errors import UnsupportedData


class RegisterAssets(AssetFormat):
    """Registers. Assets read them, and only files are written to them."""

    format = "register"

    def accepts(self, value: object) -> bool:
        return False

    def loads(self, annotation: object) -> bool:
        return annotation is Register

    def write(self, value: Any, output: AssetOutput) -> AssetWrite[Any]:
        raise UnsupportedData(f"{output.subject} is to be a register, in which only files land")

    def read(self, request: AssetInput) -> RegisterRead:
        return RegisterRead()

    def landing(self, output: AssetOutput) -> RegisterLanding:
        return RegisterLanding(output.path)


class RegisterRead(AssetRead):
    def load(self, dataset: Register | None, keys: Sequence[str] | None, annotation: object) -> Any:
        return dataset


@dataclass(frozen=True, slots=True)
class RegisterLanding(AssetLanding[int]):
    """A register of the lines of files. Each batch adds a line with its number, too."""

    path: str

    def last_batch(self, dataset: Register, application: str) -> int | None:
        numbers = (line.removeprefix(f"{application}@") for line in dataset.lines())
        return max((int(number) for number in numbers if number.isdecimal()), default=None)

    def write(self, batch: Batch, value: Any | None) -> BatchWrite:
        return BatchWrite(self.path, batch, value)

    def row_count(self, result: int) -> int:
        return result


@dataclass(frozen=True, slots=True)
class BatchWrite(AssetWrite[int]):
    path: str
    batch: Batch
    value: Sequence[str] | None

    def to(self, workspace: Workspace) -> int:
        register: Register = workspace.find(self.path, "register") or workspace.create(self.path, "register")
        known, marker = register.lines(), "@".join(map(str, self.batch.txn))
        if marker in known:
            return 0
        lines = self.value
        if lines is None:
            lines = [line.decode() for _, file in self.batch.open_files() for line in file.read().splitlines()]
        new = [line for line in dict.fromkeys(lines) if line not in known]
        for line in [*new, marker]:
            register.add(line)
        return len(new)

    def written(self, result: int, workspace: Workspace) -> Written:
        register: Register = workspace.after(self.path, "register")
        written = Written.of_dataset(workspace, self.path, f"{result} lines", str(register.version))
        return replace(written, metadata={**written.metadata, "lake/lines_written": result})
