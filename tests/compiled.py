"""Programs that JAX compiled for a test are kept with pytest's other files: the next run need not compile them again.

Compiling is most of what tests of networks do. JAX finds a program by its text, its options and the version of its
compiler, so that what is found is what compiling would give; programs hold code for one kind of processor, which their
folder is named after. A process works in a copy, and what it adds is kept when its tests are done, one whole file at a
time: neither a process beside it nor one that is killed can leave half a program behind. Processes that tests start
compile for themselves. ``pytest --cache-clear`` forgets all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import pytest

_DAYS = 30  # for which a program is kept after it was made

_copies: list[Path] = []


def _kept(config: pytest.Config) -> Path | None:
    cache = getattr(config, "cache", None)  # there is none with -p no:cacheprovider
    if cache is None:
        return None
    with contextlib.suppress(OSError):
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        flags = sorted({line for line in told.splitlines() if line.startswith(("flags", "Features", "model name"))})
        return Path(cache.mkdir("programs")) / hashlib.sha256("\n".join(flags).encode()).hexdigest()[:16]
    return Path(cache.mkdir("programs")) / platform.machine()


def remember(config: pytest.Config) -> None:
    """Let JAX look for programs that were compiled before, as soon as something has loaded it."""
    if _copies or "jax" not in sys.modules or (kept := _kept(config)) is None:
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    copy = Path(mkdtemp(prefix="escudo-programs-"))
    _copies.append(copy)
    kept.mkdir(exist_ok=True)
    for file in kept.glob("*-cache"):
        shutil.copy2(file, copy)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_enable_xla_caches", "")  # their folder would be a part of a program's name
    jax.config.update("jax_compilation_cache_dir", str(copy))
    compilation_cache.reset_cache()  # it may have looked before, and found that there was none


def keep(config: pytest.Config) -> None:
    """Keep what was compiled, when all tests are done."""
    kept = _kept(config)
    for copy in _copies:
        assert kept is not None, "there was one"
        for file in copy.glob("*-cache"):
            if not (kept / file.name).exists():
                draft = kept / f"{file.name}.{os.getpid()}"
                shutil.copy2(file, draft)
                draft.replace(kept / file.name)
        for file in kept.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the process beside this one was faster
                if time.time() - file.stat().st_mtime > 86400 * _DAYS:
                    file.unlink()
        shutil.rmtree(copy)
    _copies.clear()
