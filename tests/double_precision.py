"""JAX in double precision for a block, by whichever name the installed version has."""

from contextlib import AbstractContextManager
from typing import Any


def double_precision() -> AbstractContextManager[Any]:
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # until JAX 0.8

    return enable_x64(True)
