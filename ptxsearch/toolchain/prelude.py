"""What CUDA C++ finds in place of the host's headers: names NVRTC lacks, and includes it may use.

nvcc sources lean on `<cstdint>`, `<cfloat>`, `<cmath>`; NVRTC has none of them. Standard includes
are blanked out line by line, the prelude gives their common names, CUDA's own headers stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

NAME = "ptxsearch_prelude.h"

# 64-bit types as CUDA's own headers declare them under NVRTC: a second declaration must agree.
_TYPES = {
    "int8_t": "signed char", "int16_t": "short", "int32_t": "int", "int64_t": "long long",
    "uint8_t": "unsigned char", "uint16_t": "unsigned short", "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long", "intptr_t": "long long",
    "uintptr_t": "unsigned long long", "uint": "unsigned int", "uchar": "unsigned char",
    "ushort": "unsigned short", "ulong": "unsigned long",
}  # fmt: skip
_CONSTANTS = {
    "INFINITY": "(__int_as_float(0x7f800000))", "NAN": "(__int_as_float(0x7fffffff))",
    "HUGE_VALF": "(__int_as_float(0x7f800000))",
    "HUGE_VAL": "(__longlong_as_double(0x7ff0000000000000LL))",
    "FLT_MAX": "3.402823466e+38f", "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f", "DBL_MAX": "1.7976931348623158e+308",
    "DBL_MIN": "2.2250738585072014e-308", "DBL_EPSILON": "2.2204460492503131e-016",
    "M_PI": "3.14159265358979323846", "M_PI_2": "1.57079632679489661923",
    "M_E": "2.7182818284590452354", "M_LOG2E": "1.4426950408889634074",
    "M_LN2": "0.69314718055994530942", "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}  # fmt: skip
_LIMITS = {
    "CHAR_BIT": "8", "SCHAR_MIN": "(-128)", "SCHAR_MAX": "127", "UCHAR_MAX": "255",
    "SHRT_MIN": "(-32768)", "SHRT_MAX": "32767", "USHRT_MAX": "65535",
    "INT_MIN": "(-2147483647 - 1)", "INT_MAX": "2147483647", "UINT_MAX": "4294967295U",
    "LONG_MIN": "(-9223372036854775807L - 1)", "LONG_MAX": "9223372036854775807L",
    "ULONG_MAX": "18446744073709551615UL", "LLONG_MIN": "(-9223372036854775807LL - 1)",
    "LLONG_MAX": "9223372036854775807LL", "ULLONG_MAX": "18446744073709551615ULL",
    "INT8_MIN": "(-128)", "INT8_MAX": "127", "UINT8_MAX": "255", "INT16_MIN": "(-32768)",
    "INT16_MAX": "32767", "UINT16_MAX": "65535", "INT32_MIN": "(-2147483647 - 1)",
    "INT32_MAX": "2147483647", "UINT32_MAX": "4294967295U",
    "INT64_MIN": "(-9223372036854775807LL - 1)", "INT64_MAX": "9223372036854775807LL",
    "UINT64_MAX": "18446744073709551615ULL", "SIZE_MAX": "18446744073709551615UL",
}  # fmt: skip

_HOST = (
    "algorithm", "array", "assert.h", "atomic", "cassert", "cfloat", "chrono", "cinttypes",
    "climits", "cmath", "complex", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "ctime",
    "exception", "float.h", "fstream", "functional", "initializer_list", "inttypes.h", "iomanip",
    "iostream", "iterator", "limits", "limits.h", "map", "math.h", "memory", "mutex", "new",
    "numeric", "random", "set", "sstream", "stdbool.h", "stddef.h", "stdexcept", "stdint.h",
    "stdio.h", "stdlib.h", "string", "string.h", "thread", "time.h", "tuple", "type_traits",
    "unordered_map", "utility", "vector", "cuda.h", "cuda_runtime.h", "cuda_runtime_api.h",
    "device_launch_parameters.h", "vector_types.h", "vector_functions.h", "device_functions.h",
    "host_defines.h",
)  # fmt: skip
_ALLOWED = (
    "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp6.h", "cuda_fp4.h", "mma.h",
    "cooperative_groups.h", "cooperative_groups/", "cuda_pipeline.h",
    "cuda_pipeline_primitives.h", "cuda_awbarrier.h", "cuda_awbarrier_primitives.h",
    "math_constants.h", "cuComplex.h", "sm_61_intrinsics.h", "cuda/", "nv/target", "cub/",
)  # fmt: skip
_STD = re.compile(r"\bstd\s*::")
_STD_HEADER = Path(__file__).with_name("device_std.h")
# These headers bring the limits of the integer types themselves.
_LIBRARY = re.compile(r"#[ \t]*include[ \t]*[<\"](cooperative_groups|cuda/|cub/)")
_INCLUDE = re.compile(r"^([ \t]*#[ \t]*include[ \t]*)[<\"]([^>\"\n]*)[>\"]([^\n]*)$", re.MULTILINE)


_DECLARED_IN = {
    "cuda_fp16.h": re.compile(r"\b(__)?half2?\b|\b__float2half\b|\b__half2float\b"),
    "cuda_bf16.h": re.compile(r"\b__nv_bfloat16(2|_raw)?\b|\b__float2bfloat16\b"),
    "cuda_fp8.h": re.compile(r"\b__nv_fp8\w*"),
    "mma.h": re.compile(r"\bnvcuda\b|\bwmma\s*::"),
    "cooperative_groups.h": re.compile(r"\bcooperative_groups\b"),
    "cuda_pipeline.h": re.compile(r"\b__pipeline_\w+"),
}


@dataclass(frozen=True)
class Prepared:
    """A source that NVRTC can take: text with the same lines, and the headers it comes with.

    `refused` says why it must not be compiled, `dropped` lists the host's includes it had.
    """

    text: str
    headers: dict[str, str]
    dropped: tuple[str, ...] = ()
    refused: str = ""


def prepare(source: str, roots: Sequence[Path], defines: Mapping[str, str]) -> Prepared:
    """`source` with the host's includes blanked, and beside it the prelude with `defines`.

    The macros stand in the prelude, not on the command line, where one named T would break the
    declarations that NVRTC reads before any header.
    """
    dropped: list[str] = []
    refused: list[str] = []

    def judge(match: re.Match[str]) -> str:
        name = match[2].strip()
        if name in _HOST:
            dropped.append(name)
            return ""
        if not _allowed(name):
            refused.append(
                f"include of {name[:80]!r} is not allowed; use {', '.join(_ALLOWED[:7])} "
                "or none (float limits, INFINITY and stdint types are there without one)"
            )
        elif name != "nv/target" and not any((root / name).is_file() for root in roots):
            refused.append(_absent(name))
        return match[0]

    text = _INCLUDE.sub(judge, source)
    headers = {NAME: _prelude(text, defines)}
    if not any((root / "nv" / "target").is_file() for root in roots):
        # NVRTC has the macros of this header built in; CUDA's headers include it all the same.
        headers["nv/target"] = "#pragma once\n"
    return Prepared(text, headers, tuple(dropped), refused[0] if refused else "")


def missing_headers(source: str) -> tuple[str, ...]:
    """The CUDA headers whose names `source` uses and which it does not include."""
    included = {match[2].strip() for match in _INCLUDE.finditer(source)}
    return tuple(
        header
        for header, names in _DECLARED_IN.items()
        if header not in included and names.search(_INCLUDE.sub("", source))
    )


def _allowed(name: str) -> bool:
    inside = ".." not in name.split("/") and "\\" not in name
    return inside and any(
        name == entry or (entry.endswith("/") and name.startswith(entry)) for entry in _ALLOWED
    )


def _absent(name: str) -> str:
    if name.startswith(("cuda/", "cub/")):
        return (
            f"include of {name!r} needs the headers of the nvidia-cuda-cccl package, which is not "
            "installed; use the PTX or the intrinsics directly"
        )
    return f"there is no header {name!r} in this CUDA installation; remove the include"


def _prelude(source: str, defines: Mapping[str, str]) -> str:
    """The prelude without the names that `source` or `defines` give themselves."""
    own = set(defines)
    own |= set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", source, re.MULTILINE))
    own |= set(re.findall(r"\btypedef\b[^;{}]*?\b(\w+)[ \t]*;", source))
    own |= set(re.findall(r"\busing[ \t]+(\w+)[ \t]*=", source))
    lines = ["#pragma once"]
    lines += [f"typedef {kind} {name};" for name, kind in _TYPES.items() if name not in own]
    constants = _CONSTANTS if _LIBRARY.search(source) else {**_CONSTANTS, **_LIMITS}
    lines += [f"#define {name} {text}" for name, text in constants.items() if name not in own]
    lines += [f"#define {name} {text}" for name, text in defines.items()]
    if "CUtensorMap" in source and "CUtensorMap" not in own:
        lines.append("struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };")
    if _STD.search(source):
        lines.append(_STD_HEADER.read_text(encoding="utf-8"))
    return "\n".join([*lines, ""])
