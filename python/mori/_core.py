# SPDX-License-Identifier: MIT
"""Access to the native extension ``mori._native._moricore``. No other module imports it.

The first call of :func:`call` or :func:`fast` loads the extension; importing mori never does.
Loading starts the Go runtime and its threads, and a started runtime does not survive fork().

* :func:`call` runs a control function by name and releases the GIL.
* :func:`fast` returns the module of C functions for posting and polling. They keep the GIL unless
  they wait.

A forked child that inherits a loaded extension must not enter the runtime: the call would hang
forever. In such a child every function of both modules is replaced by one that raises ForkError.
If the parent had not loaded the extension, the child may load its own.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from ._errors import ExtensionError, ForkError, from_native
from ._limits import check_threads

_EXTENSION = "mori._native._moricore"
_FAST = "mori._native._fast"
_SLICE_MS = 100  # longest native wait; Ctrl-C is handled between two slices
_REBUILD = "run `make dev` in the source tree, or install mori again"

_lock = threading.RLock()
_extension: Any = None
_fast: Any = None
_started = False
_inherited = False
_log_level: str | None = None
_status_base: type | None = None
_status_codes: dict[int, Any] = {}
_status_type: type | None = None
_transfer_options: Callable[..., tuple[int, str, int, int, int]] | None = None


def call(name: str, *args: Any) -> Any:
    """Run the native function ``name`` and return its result; raise its error as a MoriError."""
    function = getattr(_extension or _load(), "pybind_" + name, None)
    if function is None:
        raise ExtensionError(f"the native extension lacks {name}, so it is not of these Python files; {_REBUILD}")
    try:
        return function(*args)
    except RuntimeError as err:
        raise from_native(err) from None


def fast() -> Any:
    """Return the module of fast-path C functions (post, post_one, wait_all, new_status, ...).

    Loads the extension if needed.
    """
    if _fast is None:
        _load()
    return _fast


def loaded() -> bool:
    """Report whether the native runtime is loaded in this process."""
    return _extension is not None


def set_log_level(level: str) -> None:
    """Set the native log level, without starting the Go runtime.

    If the extension is not loaded yet, the level applies when it loads.
    """
    global _log_level
    with _lock:
        _log_level = level
        if _extension is not None:
            call("SetLogLevel", level)


def provide_status(base: type, codes: dict[int, Any], options: Callable[..., tuple[int, str, int, int, int]]) -> None:
    """Register what the C status type needs.

    ``base`` is the Python class it derives from, ``codes`` the enum member for each code, and
    ``options`` the function that parses a transfer's options.
    """
    global _status_base, _status_codes, _transfer_options
    with _lock:
        _status_base, _status_codes, _transfer_options = base, codes, options
        if _fast is not None:
            _install_status(_fast)


def _load() -> Any:
    global _extension, _fast
    with _lock:
        if _extension is not None:
            return _extension
        if _inherited:
            _refuse()
        check_threads()
        extension = _import_extension()
        if not hasattr(extension, "pybind_InstallFast"):
            raise ExtensionError(
                f"the native extension lacks InstallFast, so it is not of these Python files; {_REBUILD}"
            )
        extension.pybind_InstallFast(_FAST)
        fast_module = sys.modules[_FAST]
        extension.pybind_DeviceSetKernels(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_kernels"))
        if _log_level is not None:
            extension.pybind_SetLogLevel(_log_level)
        if _status_base is not None:
            _install_status(fast_module)
        _fast = fast_module
        _extension = extension
        return extension


def _install_status(fast_module: Any) -> None:
    global _status_type
    if _status_type is None:
        _status_type = fast_module.setup(_status_base, _status_codes, _transfer_options, from_native)


def _import_extension() -> Any:
    global _started
    # Set before the import: if another thread forks while the runtime starts, the child must not
    # enter the runtime.
    _started = True
    try:
        return importlib.import_module(_EXTENSION)
    except ImportError as err:
        _started = False
        raise ExtensionError(_load_failure(err)) from err


def _load_failure(err: ImportError) -> str:
    """Return an error text: which file was expected, which were found, and the likely causes."""
    wanted = "_moricore" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native")
    try:
        present = sorted(f for f in os.listdir(folder) if f.startswith("_moricore") and not f.endswith(".pyi"))
    except OSError as missing:
        present = []
        folder = f"{folder} ({missing.strerror})"
    tried = [f"look for {wanted} in {folder}: {'found' if wanted in present else 'not there'}"]
    if wanted in present:
        tried.append(f"load it: {err}")
        causes = [
            "the C library here is older than the one it was built for, or is musl (glibc is needed)",
            f"the file was built for another machine than {platform.machine()}",
            "the file is damaged: build or install mori again",
        ]
    elif present:
        tried.append(f"other builds there: {', '.join(present)}")
        causes = [f"mori was installed for another Python than {platform.python_version()}: install it with this one"]
    else:
        causes = [f"this is a source tree that was not built, or the installation is incomplete: {_REBUILD}"]
    steps = "".join(f"\n  {n}. {step}" for n, step in enumerate(tried, 1))
    likely = "".join(f"\n  - {cause}" for cause in causes)
    return f"mori's native extension did not load. Tried:{steps}\nLikely causes:{likely}"


def run(name: str, *args: Any) -> int:
    """Start a native job, wait for it and return its result.

    If an exception such as KeyboardInterrupt ends the wait, the job is dropped.
    """
    return finish(call(name, *args))


def finish(job: int) -> int:
    """Wait for a job that is already started; otherwise like :func:`run`."""
    try:
        while not call("JobWait", job, _SLICE_MS):
            pass
    except BaseException:
        call("JobDrop", job)
        raise
    result: int = call("JobResult", job)
    return result


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise ForkError(
        "this process was forked after mori had started in its parent, and the native runtime cannot survive a"
        " fork: start children with the 'spawn' or 'forkserver' method, or fork before the first engine is made"
    )


def _after_fork_in_child() -> None:
    global _lock, _inherited
    _lock = threading.RLock()
    if not _started:
        return
    _inherited = True
    for module in (sys.modules.get(_EXTENSION), sys.modules.get(_FAST)):
        for name, value in list(vars(module).items()) if module is not None else ():
            if callable(value) and not isinstance(value, type) and not name.startswith("__"):
                setattr(module, name, _refuse)


os.register_at_fork(after_in_child=_after_fork_in_child)
