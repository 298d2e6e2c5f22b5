"""Run the exported kernel on CUDA tensors: `run("full", x=x, out=out)` writes into `out`."""
import ctypes, json, pathlib, torch
from cuda.bindings import driver as cu

here = pathlib.Path(__file__).parent
torch.cuda.init(); torch.cuda.synchronize()
module = cu.cuModuleLoadData((here / "kernel.cubin").read_bytes())[1]

def run(workload, **given):
    """Launch the kernel on the current stream; `given` are its tensors and, if need be, scalars."""
    work = json.loads((here / "launch.json").read_text())["workloads"][workload]
    known = {p["name"]: (given.get(p["name"], p["value"]), getattr(ctypes, p["ctype"])) for p in work["scalars"]}
    held = {p["name"]: torch.zeros(p["bytes"], dtype=torch.uint8, device="cuda") for p in work["scratch"]} | given
    known |= {n: (t.data_ptr(), ctypes.c_void_p) for n, t in held.items() if hasattr(t, "data_ptr")}
    for step in work["launches"]:
        values, types = zip(*(known.get(a, (a, ctypes.c_int64)) for a in step["args"]))
        entry = cu.cuModuleGetFunction(module, step["entry"].encode())[1]
        cu.cuFuncSetAttribute(entry, cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, step["shared_bytes"])
        stream = torch.cuda.current_stream().cuda_stream
        (status,) = cu.cuLaunchKernel(entry, *step["grid"], *step["block"], step["shared_bytes"], stream, (values, types), 0)
        assert status == 0, status
