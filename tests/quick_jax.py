"""How JAX compiles in tests. Networks there run for milliseconds: compiling them well costs more than it saves.

Importing this is enough. It is without effect once JAX is running, and where somebody has set flags already.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

FLAGS = "--xla_backend_optimization_level=0"
with suppress(PackageNotFoundError):
    # Without MLIR's code for what is fused it takes half as long. A jaxlib that does not know a flag ends the process.
    FLAGS += " --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""

os.environ.setdefault("XLA_FLAGS", FLAGS)
