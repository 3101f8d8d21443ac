"""The hand-over of a try to a process elsewhere: Spark applications, pods, containers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import mask_secret
from airflow.sdk.definitions._internal.mixins import ResolveMixin

if TYPE_CHECKING:
    from lake_orch.airflow.session_group import SessionGroup


class HandedOver(ResolveMixin):
    """A value of an environment variable, which is known once a try begins: a templated field of an operator has it."""

    def __init__(self, session: SessionGroup, *, secret: bool) -> None:
        self._session, self._secret = session, secret

    def iter_references(self) -> Iterable[Any]:
        """Return no references to other tasks."""
        return ()

    def resolve(self, context: Any) -> str:
        """Return the value for the try that begins: where it writes, or the options of the lake's store."""
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.hook import LakeHook
        from lake_orch.airflow.task_run import TaskRun

        if self._secret:
            options = json.dumps(dict(LakeHook(self._session.connection).place().storage_options))
            mask_secret(options)  # Airflow keeps rendered fields in its database, and shows them
            return options
        with without_retry():
            return json.dumps(TaskRun.of_session(self._session, context).assign().to_json())

    def __repr__(self) -> str:
        return "the storage options of the lake" if self._secret else "where the try writes"
