"""Compilers: found (`find`), fed (`limits`, `prelude`), run apart (`sandbox`, `zygote`), read.

`compiler` holds the two calls the rest uses: `compile_kernel` and `build`. `nvrtc` and `ptxas` are
its stages, `diagnostics` makes their messages fit for an author, `cache` remembers.
"""

from ptxsearch.toolchain.cache import Cache, cache_folder
from ptxsearch.toolchain.compiler import Compiler, build, compile_kernel, default_compiler
from ptxsearch.toolchain.find import Toolchain, driver_version, machine_toolchain, toolchain_for
from ptxsearch.toolchain.result import Compiled, CompileFailure
from ptxsearch.toolchain.sandbox import Limits

__all__ = [
    "Cache",
    "CompileFailure",
    "Compiled",
    "Compiler",
    "Limits",
    "Toolchain",
    "build",
    "cache_folder",
    "compile_kernel",
    "default_compiler",
    "driver_version",
    "machine_toolchain",
    "toolchain_for",
]
