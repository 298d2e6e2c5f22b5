"""ncu's metric names and the counters they stand for, on sm_80 and later.

Each counter is a sum of signed metrics; where one of them is missing the counter stays None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptxsearch.evaluation import Counters

__all__ = ["METRICS", "counters"]

_SASS = "smsp__sass_inst_executed_op_"
_BYTES = "smsp__sass_data_bytes_mem_"
_SECTORS = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_"
_WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
_OPS = "smsp__sass_thread_inst_executed_op_"
_OPCODE = "opcode "
_TENSOR = ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA")
_STALL = "smsp__average_warps_issue_stalled_"

# A half operation counts the two halves of its register, as the emulator's counters do.
_SUMS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "sass_warp_instructions": ((1, "smsp__inst_executed.sum"),),
    "sass_thread_instructions": ((1, "smsp__thread_inst_executed.sum"),),
    "global_load_requests": ((1, f"{_SASS}global_ld.sum"),),
    "global_load_sectors": ((1, f"{_SECTORS}ld.sum"),),
    "global_load_bytes": ((1, f"{_BYTES}global_op_ld.sum"),),
    "global_store_requests": ((1, f"{_SASS}global_st.sum"),),
    "global_store_sectors": ((1, f"{_SECTORS}st.sum"),),
    "global_store_bytes": ((1, f"{_BYTES}global_op_st.sum"),),
    "global_atomic_requests": ((1, f"{_SASS}global_atom.sum"), (1, f"{_SASS}global_red.sum")),
    "global_atomic_sectors": ((1, f"{_SECTORS}atom.sum"), (1, f"{_SECTORS}red.sum")),
    "local_load_requests": ((1, f"{_SASS}local_ld.sum"),),
    "local_load_sectors": ((1, "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"),),
    "local_store_requests": ((1, f"{_SASS}local_st.sum"),),
    "local_store_sectors": ((1, "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"),),
    "shared_load_requests": ((1, f"{_SASS}shared_ld.sum"),),
    "shared_load_wavefronts": ((1, f"{_WAVES}ld.sum"),),
    "shared_load_bytes": ((1, f"{_BYTES}shared_op_ld.sum"),),
    "shared_store_requests": ((1, f"{_SASS}shared_st.sum"),),
    "shared_store_wavefronts": ((1, f"{_WAVES}st.sum"),),
    "shared_store_bytes": ((1, f"{_BYTES}shared_op_st.sum"),),
    "shared_atomic_requests": ((1, f"{_SASS}shared_atom.sum"),),
    "shared_wavefronts_ideal": ((1, "memory_l1_wavefronts_shared_ideal"),),
    "bank_conflicts": (
        (1, "memory_l1_wavefronts_shared"),
        (-1, "memory_l1_wavefronts_shared_ideal"),
    ),
    "async_copy_requests": ((1, f"{_SASS}ldgsts.sum"),),
    "async_copy_sectors": ((1, f"{_SECTORS}ldgsts.sum"),),
    "async_copy_bytes": ((1, f"{_BYTES}global_op_ldgsts.sum"),),
    "fp16_add": ((2, f"{_OPS}hadd_pred_on.sum"),),
    "fp16_mul": ((2, f"{_OPS}hmul_pred_on.sum"),),
    "fp16_fma": ((2, f"{_OPS}hfma_pred_on.sum"),),
    "fp32_add": ((1, f"{_OPS}fadd_pred_on.sum"),),
    "fp32_mul": ((1, f"{_OPS}fmul_pred_on.sum"),),
    "fp32_fma": ((1, f"{_OPS}ffma_pred_on.sum"),),
    "fp64_add": ((1, f"{_OPS}dadd_pred_on.sum"),),
    "fp64_mul": ((1, f"{_OPS}dmul_pred_on.sum"),),
    "fp64_fma": ((1, f"{_OPS}dfma_pred_on.sum"),),
    "integer_operations": ((1, f"{_OPS}integer_pred_on.sum"),),
    "branches": ((1, f"{_SASS}branch.sum"),),
    "divergent_branches": ((1, "smsp__sass_branch_targets_threads_divergent.sum"),),
    "dram_read_bytes": ((1, "dram__bytes_read.sum"),),
    "dram_write_bytes": ((1, "dram__bytes_write.sum"),),
    "l2_read_sectors": ((1, "lts__t_sectors_op_read.sum"),),
    "l2_write_sectors": ((1, "lts__t_sectors_op_write.sum"),),
    "duration": ((1e-9, "gpu__time_duration.sum"),),
}

# These are ratios: over several launches the mean weighted by duration.
_EXTRA = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sass__inst_executed_per_opcode",
    f"{_SASS}tma_ld.sum",
    f"{_SASS}tma_st.sum",
    "gpc__cycles_elapsed.avg.per_second",
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    *(
        f"{_STALL}{reason}_per_issue_active.ratio"
        for reason in (
            "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss",
            "lg_throttle", "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle",
            "misc", "no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping",
            "tex_throttle", "wait",
        )
    ),
)  # fmt: skip
_ADDED = frozenset(
    {
        "sm__inst_executed_pipe_tensor_op_gmma.sum",
        "sass__inst_executed_per_opcode",
        f"{_SASS}tma_ld.sum",
        f"{_SASS}tma_st.sum",
    }
)

METRICS: tuple[str, ...] = tuple(
    dict.fromkeys([*(name for terms in _SUMS.values() for _, name in terms), *_EXTRA])
)


def counters(launches: Sequence[Mapping[str, float]]) -> Counters:
    """The counters of a launch sequence from the metrics of each launch."""
    if not launches:
        return Counters(source="ncu")
    values: dict[str, float] = {}
    for field, terms in _SUMS.items():
        if all(name in launch for launch in launches for _, name in terms):
            values[field] = sum(w * launch[name] for launch in launches for w, name in terms)
    tensor = [_tensor(launch) for launch in launches]
    if None not in tensor:
        values["tensor_instructions"] = sum(count for count in tensor if count is not None)
    weights = [launch.get("gpu__time_duration.sum", 1.0) for launch in launches]
    extra: dict[str, float] = {}
    for name in _EXTRA:
        if all(name in launch for launch in launches):
            if name in _ADDED:
                extra[name] = sum(launch[name] for launch in launches)
            else:
                weighted = sum(
                    w * launch[name] for w, launch in zip(weights, launches, strict=True)
                )
                extra[name] = weighted / sum(weights)
    occupancy = extra.get("sm__warps_active.avg.pct_of_peak_sustained_active")
    return Counters(
        source="ncu",
        achieved_occupancy=None if occupancy is None else occupancy / 100.0,
        extra=extra,
        **values,
    )


def _tensor(launch: Mapping[str, float]) -> float | None:
    """Executed matrix instructions; None where opcodes were not counted.

    The pipe's own counter also counts half-precision arithmetic, with which compilers load
    constants, so it proves nothing.
    """
    counts = {n[len(_OPCODE) :]: v for n, v in launch.items() if n.startswith(_OPCODE)}
    if not counts:
        return None
    return sum(value for name, value in counts.items() if name.split(".")[0] in _TENSOR)
