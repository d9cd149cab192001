"""How JAX compiles in tests. Networks there run for milliseconds: compiling them well costs more than it saves.

Importing this is enough. It is without effect once JAX is running, and where somebody has set flags already.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

FLAGS = "--xla_backend_optimization_level=0"
with suppress(PackageNotFoundError):
    # Without MLIR's code for what is fused it takes half as long, and a quarter less in one piece than in several,
    # between which programs this small wait. A jaxlib that does not know a flag ends the process.
    if version("jaxlib").startswith("0.10."):
        FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"

os.environ.setdefault("XLA_FLAGS", FLAGS)
