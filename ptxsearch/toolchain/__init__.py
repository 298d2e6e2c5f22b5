"""Compilers: found, fed, run apart from us, and read.

In reading order: `compiler` has the two calls that the rest uses, `compile_kernel` and `build`;
`result` is what they give. `find` says which compilers there are. A source passes `limits` and
`prelude`, then `nvrtc` and `ptxas`, which run in a `sandbox` (its child is `zygote`); `ending` and
`diagnostics` make sense of what they say, `cache` remembers it, `fork` keeps copies of us apart.
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
