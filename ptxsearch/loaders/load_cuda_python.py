"""Run the exported kernel with cuda-python: `from load_cuda_python import run; run("full", x=...)`."""
import json, pathlib, numpy as np
from cuda.bindings import driver as cu
def ok(r): assert r[0] == 0, r; return r[1] if len(r) == 2 else r[1:]
here = pathlib.Path(__file__).parent; spec = json.loads((here / "launch.json").read_text())
ok(cu.cuInit(0)); context = ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0)))); ok(cu.cuCtxSetCurrent(context))
module = ok(cu.cuModuleLoadData((here / "kernel.cubin").read_bytes()))
KINDS = {"f64": "f8", "f32": "f4", "f16": "f2", "s64": "i8", "s32": "i4", "s16": "i2", "s8": "i1", "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1", "bf16": "u2", "e4m3": "u1", "e5m2": "u1"}
def run(workload, **given):
    """Numpy arrays in by name, the out and inout arrays out by name; scalars are filled in from the sizes."""
    work = spec["workloads"][workload]; held, args = {}, {}
    for p in work["params"] + [dict(s, name=n, role="out") for n, s in work["scratch"].items()]:
        host = given.get(p["name"], work["sizes"].get(p["name"], 0)) if p["role"] != "out" else np.zeros(p["shape"], KINDS[p["dtype"]])
        args[p["name"]] = held[p["name"]] = np.array(host, KINDS[p["dtype"]])
        if p["role"] != "scalar":
            pointer = ok(cu.cuMemAlloc(max(held[p["name"]].nbytes, 1))); args[p["name"]] = np.array(int(pointer), "u8")
            ok(cu.cuMemcpyHtoD(pointer, held[p["name"]].ctypes.data, held[p["name"]].nbytes))
    for step in work["launches"]:
        values = [args[a] if isinstance(a, str) else np.array(a, "i4") for a in step["args"]]
        table = np.array([v.ctypes.data for v in values], "u8"); function = ok(cu.cuModuleGetFunction(module, step["entry"].encode()))
        ok(cu.cuFuncSetAttribute(function, cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, step["shared_bytes"]))
        ok(cu.cuLaunchKernel(function, *step["grid"], *step["block"], step["shared_bytes"], 0, table.ctypes.data, 0))
    ok(cu.cuCtxSynchronize())
    for p in work["params"]:
        if p["role"] in ("out", "inout"): ok(cu.cuMemcpyDtoH(held[p["name"]].ctypes.data, int(args[p["name"]]), held[p["name"]].nbytes))
    return {p["name"]: held[p["name"]] for p in work["params"] if p["role"] in ("out", "inout")}
