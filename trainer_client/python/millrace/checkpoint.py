"""Checkpoints: saves with a say in when and what, and restores."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union

from ._base import steps
from ._base.callbacks import saves as _visit_save
from ._base.connection import Call, Connection
from ._base.library import NULL, ffi, lib, text
from ._base.options import choice, whole
from ._base.structs import name_of, of_struct, string
from .errors import Error, error_of
from .future import Future
from .progress import Bar

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions

_U64_MAX, _U32_MAX = 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF
_KINDS = {"configured": lib.MR_SAVE_CONFIGURED, "full": lib.MR_SAVE_FULL, "delta": lib.MR_SAVE_DELTA}
_REPORTED_KINDS = {**_KINDS, "partial": lib.MR_SAVE_PARTIAL}
_SAVE_STATES = {
    "ended": lib.MR_SAVE_ENDED,
    "writing": lib.MR_SAVE_WRITING,
    "waits_for_step": lib.MR_SAVE_WAITS_FOR_STEP,
    "queued": lib.MR_SAVE_QUEUED,
}
_STATES = {
    "idle": lib.MR_CHECKPOINT_IDLE,
    "saving": lib.MR_CHECKPOINT_SAVING,
    "loading": lib.MR_CHECKPOINT_LOADING,
}
_REMOTE = {
    "none": lib.MR_REMOTE_NONE,
    "pending": lib.MR_REMOTE_PENDING,
    "there": lib.MR_REMOTE_THERE,
    "superseded": lib.MR_REMOTE_SUPERSEDED,
}
_POLL_S = 0.05
Names = Union[Sequence[str], Mapping[str, str]]


@dataclass(frozen=True)
class SaveInfo:
    """What became of a save."""

    number: int
    state: str  #: "ended" (well or not: status says which), "writing", "waits_for_step", "queued"
    is_automatic: bool
    is_at_step: bool
    id: int  #: of the checkpoint; 0 until its cut is made
    kind: str  #: "full", "delta" or "partial"; "configured" until then
    parent_id: int  #: of a delta
    step: int  #: that training had come to at its cut; until then, what it waits for
    bytes: int
    duration_us: int
    status: str  #: once it has ended: "OK", "CANCELLED", "IO_ERROR", ...
    error: str
    committed_ms: int  #: when it was published, since 1970 by the server's clock; 0: not yet, or never
    remote_ms: int  #: the same of its copy in checkpoint.remote
    remote: str  #: the copy: "none" (not copied), "pending", "there", "superseded" (removed before)


@dataclass(frozen=True)
class CheckpointInfo:
    """Steps, the checkpoint that the server was restored from, what it saves or loads now, and its saves."""

    step: int  #: that training has reached, by the steps that calls carry
    restored_id: int  #: 0: none
    restored_step: int
    #: trainers may continue with step restored_step + 1, and repeat everything to the last bit
    restored_is_at_step: bool
    last_good_id: int  #: of the last save that was published; 0: none yet
    last_good_step: int
    saves_queued: int
    waiting_step: int  #: a cut at this step is being waited for; 0: none
    trainers_held: int
    trainers_awaited: int
    state: str  #: "idle", "saving", "loading"
    id: int  #: of the checkpoint that is saved or loaded now, or of the last one
    bytes_done: int
    bytes_total: int
    duration_us: int
    last_status: str  #: of the last one: "OK", "IO_ERROR", ...
    last_error: str
    saves: list[SaveInfo]


@dataclass(frozen=True)
class Restored:
    """The result of a restore."""

    id: int
    step: int  #: that training had reached at the cut; 0: calls named none
    is_at_step: bool  #: all pushes up to `step` are in it and none after
    tables: int
    variables: int
    parameters: int  #: of remote calls


def _save_info(struct: Any) -> SaveInfo:
    return of_struct(
        SaveInfo,
        struct,
        state=name_of(_SAVE_STATES, struct.state),
        kind=name_of(_REPORTED_KINDS, struct.kind),
        status=text(lib.mr_status_name(struct.status)),
        remote=name_of(_REMOTE, struct.remote),
    )


class CheckpointCalls(Connection):
    """The part of millrace.Client that is about checkpoints."""

    def _save(
        self,
        directory: str | None,
        kind: str,
        step: int,
        trainers: int,
        queue: bool,
        names: Optional[Sequence[str]],
    ) -> Call:
        path, number = string(directory), ffi.new("uint64_t *")
        if names is not None and (isinstance(names, str) or not names):
            raise ValueError("names must be a list of names; None saves everything")
        strings = [string(name) for name in names or ()]
        wanted = ffi.new("char *[]", strings) if strings else NULL
        save = ffi.new(
            "struct mr_save_options *",
            {
                "bytes": ffi.sizeof("struct mr_save_options"),
                "directory": path,
                "kind": choice("kind", kind, _KINDS),
                "step": whole("step", step, _U64_MAX),
                "trainers": whole("trainers", trainers, _U32_MAX),
                "queue": queue,
                "names": wanted,
                "name_count": len(strings),
            },
        )
        held = path, strings, wanted
        return Call(lib.mr_save, (save, NULL, number), lambda _: number[0], held=held)

    def save(
        self,
        directory: str | None = None,
        *,
        kind: str = "configured",
        at_step: int = 0,
        trainers: int = 0,
        queue: bool = False,
        names: Optional[Sequence[str]] = None,
        **options: Unpack[CallOptions],
    ) -> int:
        """Starts a save and returns its number at once; training continues. wait_for_save() waits for it.

        directory: on the server's machine; None: the configured one. kind: "configured", "full", "delta".
        at_step: all pushes up to this step are in it and none after; for trainers that train in step
        (docs/checkpoints.md).
        trainers: how many have that step; 0: as configured. queue: while another save is running, wait for
        its end instead of raising CheckpointRunning. names: the tables, variables and parameters of remote
        calls to save; None: all. Such a checkpoint is partial, lies in the folder `partial` of the directory,
        and is restored by names.
        """
        return self._run(self._save(directory, kind, at_step, trainers, queue, names), options)

    def save_async(
        self,
        directory: str | None = None,
        *,
        kind: str = "configured",
        at_step: int = 0,
        trainers: int = 0,
        queue: bool = False,
        names: Optional[Sequence[str]] = None,
        **options: Unpack[CallOptions],
    ) -> Future:
        """save() as a Future."""
        return self._start(self._save(directory, kind, at_step, trainers, queue, names), options)

    def wait_for_save(
        self, number: int, timeout_s: float | None = None, remote: bool = False, progress: bool | None = None
    ) -> SaveInfo:
        """Waits until a save has ended, and raises what it ended with unless that was well. TimeoutError
        after `timeout_s`.

        remote: waits for the copy in checkpoint.remote, too; InvalidArgument if none will be made.
        progress: show a bar on standard error; None: on a terminal and in a notebook.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with Bar(f"save {number}", progress) as bar:
            while True:
                now = self.checkpoint_info(number)
                info = now.saves[0]
                if info.state == "ended" and not (remote and info.remote == "pending"):
                    bar.show(info.bytes, info.bytes)
                    break
                if bar.is_shown and info.state == "writing":
                    bar.show(now.bytes_done, now.bytes_total)
                if until is not None and time.monotonic() >= until:
                    what = "is not copied yet" if info.state == "ended" else f"is still running: {info.state}"
                    raise TimeoutError(f"{self.server}: save {number} {what}")
                time.sleep(_POLL_S)
        if info.status != "OK":
            raise error_of(
                getattr(lib, "MR_" + info.status, lib.MR_INTERNAL),
                f"{self.server}: save {number}: {info.error or info.status}",
            )
        if remote and info.remote != "there":
            raise error_of(
                lib.MR_INVALID_ARGUMENT,
                f"{self.server}: save {number}: checkpoint {info.id} is on the server's disk, and no copy of "
                f"it is made ({info.remote}): is checkpoint.remote set?",
            )
        return info

    def cancel_save(self, number: int, **options: Unpack[CallOptions]) -> None:
        """Withdraws the save with this number. InvalidArgument: it has ended already, and the text says
        how."""
        self._run(Call(lib.mr_checkpoint_cancel, (whole("number", number, _U64_MAX),)), options)

    def cancel_save_async(self, number: int, **options: Unpack[CallOptions]) -> Future:
        """cancel_save() as a Future."""
        return self._start(Call(lib.mr_checkpoint_cancel, (whole("number", number, _U64_MAX),)), options)

    def _info(self, number: int) -> Call:
        info = ffi.new("struct mr_checkpoint_info *", {"bytes": ffi.sizeof("struct mr_checkpoint_info")})
        saves: list[Any] = []
        handle = ffi.new_handle(saves)
        return Call(
            lib.mr_checkpoint_info,
            (whole("number", number, _U64_MAX), info, _visit_save, handle),
            lambda _: of_struct(
                CheckpointInfo,
                info,
                state=name_of(_STATES, info.state),
                last_status=text(lib.mr_status_name(info.last_status)),
                saves=[_save_info(save) for save in saves],
            ),
        )

    def checkpoint_info(self, number: int = 0, **options: Unpack[CallOptions]) -> CheckpointInfo:
        """Steps, restored checkpoint, and the save with this number, or with 0 all that the server still
        knows, the oldest first."""
        return self._run(self._info(number), options)

    def checkpoint_info_async(self, number: int = 0, **options: Unpack[CallOptions]) -> Future:
        """checkpoint_info() as a Future."""
        return self._start(self._info(number), options)

    def _restore(self, directory: str | None, id: int, names: Optional[Names], replace: bool) -> Call:
        path, restored = string(directory), ffi.new(
            "struct mr_restored *", {"bytes": ffi.sizeof("struct mr_restored")}
        )
        wanted = (
            {}
            if names is None
            else dict(names)
            if isinstance(names, Mapping)
            else {name: name for name in names}
        )
        if names is not None and not wanted:
            raise ValueError("names are empty; None restores all of the checkpoint")
        strings = [(string(name), string(new)) for name, new in wanted.items()]
        pairs = ffi.new("struct mr_restore_name[]", strings) if strings else NULL
        what = ffi.new(
            "struct mr_restore_options *",
            {
                "bytes": ffi.sizeof("struct mr_restore_options"),
                "directory": path,
                "id": whole("id", id, _U64_MAX),
                "names": pairs,
                "name_count": len(strings),
                "replace": replace,
            },
        )

        def made(_: Any) -> Restored:
            if names is None:
                steps.forget(self)
            return of_struct(Restored, restored)

        return Call(lib.mr_restore, (what, restored), made, held=(path, strings, pairs))

    def restore(
        self,
        directory: str | None = None,
        id: int = 0,
        names: Optional[Names] = None,
        replace: bool = False,
        progress: bool | None = None,
        **options: Unpack[CallOptions],
    ) -> Restored:
        """Puts a checkpoint in place of all that the node holds; id 0: the newest that verifies. On failure
        the node serves what it did.

        names: take only these tables, variables and parameters of remote calls out of it, beside what the
        node holds; a dict gives them new names. With `replace` in the place of those that have such names
        already. Tables and variables have numbers of their own: look them up by name again.
        progress: show a bar on standard error; None: on a terminal and in a notebook.
        """
        call = self._restore(directory, id, names, replace)
        with Bar("restore", progress) as bar:
            if not bar.is_shown:
                return self._run(call, options)
            future = self._start(call, options)
            while not future.done():
                try:
                    now = self.checkpoint_info()
                    bar.show(now.bytes_done, now.bytes_total if now.state == "loading" else 0)
                except Error:
                    pass  # the restore itself says what is wrong
                time.sleep(_POLL_S)
            return future.result()

    def restore_async(
        self,
        directory: str | None = None,
        id: int = 0,
        names: Optional[Names] = None,
        replace: bool = False,
        **options: Unpack[CallOptions],
    ) -> Future:
        """restore() as a Future."""
        return self._start(self._restore(directory, id, names, replace), options)
