"""Run the exported kernel on numpy arrays with cuda-python: `run("full", x=x)["out"]`."""
import ctypes, json, pathlib, numpy as np
from cuda.bindings import driver as cu

def ok(answer):
    assert answer[0] == 0, answer[0]
    return answer[-1]

here = pathlib.Path(__file__).parent
ok(cu.cuInit(0)); ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(ok(cu.cuDeviceGet(0))))))
module = ok(cu.cuModuleLoadData((here / "kernel.cubin").read_bytes()))

def run(workload, **given):
    """The arrays that the kernel writes, by name; `given` are its inputs and, if need be, scalars."""
    work = json.loads((here / "launch.json").read_text())["workloads"][workload]
    scalars = {p["name"]: (given.get(p["name"], p["value"]), getattr(ctypes, p["ctype"])) for p in work["scalars"]}
    arrays = {p["name"]: np.zeros(p["shape"], p["numpy"]) for p in work["arrays"] + work["scratch"]}
    for name in arrays.keys() & given.keys(): arrays[name][...] = given[name]
    pointers = {name: int(ok(cu.cuMemAlloc(max(array.nbytes, 1)))) for name, array in arrays.items()}
    for name, array in arrays.items(): ok(cu.cuMemcpyHtoD(pointers[name], array.ctypes.data, array.nbytes))
    known = {name: (pointer, ctypes.c_void_p) for name, pointer in pointers.items()} | scalars
    for step in work["launches"]:
        values, types = zip(*(known.get(a, (a, ctypes.c_int64)) for a in step["args"]))
        entry = ok(cu.cuModuleGetFunction(module, step["entry"].encode()))
        ok(cu.cuFuncSetAttribute(entry, cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, step["shared_bytes"]))
        ok(cu.cuLaunchKernel(entry, *step["grid"], *step["block"], step["shared_bytes"], 0, (values, types), 0))
    for p in work["arrays"]: ok(cu.cuMemcpyDtoH(arrays[p["name"]].ctypes.data, pointers[p["name"]], arrays[p["name"]].nbytes))
    for pointer in pointers.values(): ok(cu.cuMemFree(pointer))
    return {p["name"]: arrays[p["name"]] for p in work["arrays"] if p["role"] != "in"}
