"""The fixed words of PTX ISA 9: types, state spaces, special registers, opcodes, directives."""

from __future__ import annotations

import re


def words(text: str) -> tuple[str, ...]:
    """The words of a text, which stands for a long list of them."""
    return tuple(text.split())


TYPE_BYTES = {
    **dict.fromkeys(words("b8 u8 s8 e4m3 e5m2"), 1),
    **dict.fromkeys(words("b16 u16 s16 f16 bf16"), 2),
    **dict.fromkeys(words("b32 u32 s32 f32 f16x2 bf16x2 tf32"), 4),
    **dict.fromkeys(words("b64 u64 s64 f64 f32x2 texref samplerref surfref"), 8),
    "b128": 16,
    "pred": 1,
}
OPAQUE_TYPES = frozenset(words("texref samplerref surfref"))
FLOAT_TYPES = frozenset(words("f16 f32 f64 bf16"))

SPACES = frozenset(words("global const shared local param tex"))
LINKAGES = frozenset(words("visible extern weak common"))
LANES = {"x": "x", "y": "y", "z": "z", "w": "w", "r": "x", "g": "y", "b": "z", "a": "w"}
SUBWORD = re.compile(r"b[0-7]{1,4}|h[0-3]{1,2}")

_VECTORS = words("tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid")
_SCALARS = words(
    """
    laneid warpid nwarpid smid nsmid gridid is_explicit_cluster cluster_ctarank cluster_nctarank
    lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock clock_hi clock64 globaltimer
    globaltimer_lo globaltimer_hi reserved_smem_offset_begin reserved_smem_offset_end
    reserved_smem_offset_cap reserved_smem_offset_0 reserved_smem_offset_1 total_smem_size
    aggr_smem_size dynamic_smem_size current_graph_exec
    """
)
SPECIALS = frozenset(
    [f"%{name}" for name in (*_VECTORS, *_SCALARS)]
    + [f"%{name}.{lane}" for name in _VECTORS for lane in "xyzw"]
    + [f"%pm{number}{half}" for number in range(8) for half in ("", "_64")]
    + [f"%envreg{number}" for number in range(32)]
)

WARP_SIZE = {"WARP_SZ": 32, "WARP_SIZE": 32}

OPCODES = frozenset(
    words(
        """
        abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra
        brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta
        discard div dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep
        istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma mov
        movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp
        red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st
        stackrestore stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05 tensormap
        testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad
        vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma
        wmma xor
        """
    )
)

# Opcodes whose operands are addresses themselves, `sym+4` instead of `[sym+4]`.
ADDRESS_OPCODES = frozenset(words("mov cvta isspacep"))

# Which operand of a memory instruction is the address in brackets, counted from 0.
MEMORY_OPERAND = {"ld": 1, "ldu": 1, "atom": 1, "st": 0, "red": 0}

# Least and most operands of the opcodes of one fixed form.
OPERAND_COUNTS = {
    **dict.fromkeys(words("abs neg not cnot popc clz brev rcp sqrt rsqrt sin cos lg2"), (2, 2)),
    **dict.fromkeys(words("ex2 tanh mov cvta testp bfind"), (2, 2)),
    **dict.fromkeys(words("add addc sub subc mul mul24 div rem and or xor shl shr"), (3, 3)),
    **dict.fromkeys(words("copysign bmsk szext"), (3, 3)),
    **dict.fromkeys(words("mad mad24 madc sad selp slct bfe fma prmt dp4a dp2a fns shf"), (4, 4)),
    **dict.fromkeys(words("bfi lop3"), (5, 6)),
    **dict.fromkeys(words("setp set"), (3, 4)),
    **dict.fromkeys(words("ld ldu"), (2, 3)),
    **dict.fromkeys(words("st atom red"), (2, 5)),
    "bra": (1, 1),
    **dict.fromkeys(words("ret exit trap brkpt"), (0, 0)),
}

# Performance directives with the least and most numbers that follow them.
FUNCTION_DIRECTIVES = {
    **dict.fromkeys(words("maxntid reqntid reqnctapercluster"), (1, 3)),
    **dict.fromkeys(words("minnctapersm maxnctapersm maxnreg maxclusterrank"), (1, 1)),
    **dict.fromkeys(words("abi_preserve abi_preserve_control"), (1, 1)),
    **dict.fromkeys(words("explicitcluster blocksareclusters noreturn"), (0, 0)),
}
BODY_DIRECTIVES = words(
    "reg param shared local const global loc pragma branchtargets calltargets callprototype"
)
MODULE_DIRECTIVES = words(
    """
    address_size visible extern weak common entry func global const shared local tex file section
    alias pragma
    """
)
