"""Run the exported kernel on torch tensors: `from load_torch import run; run("full", x=x, out=out)`."""
import json, pathlib, ctypes, torch
here = pathlib.Path(__file__).parent; spec = json.loads((here / "launch.json").read_text())
torch.zeros(1, device="cuda"); cuda = ctypes.CDLL("libcuda.so.1"); module = ctypes.c_void_p()
assert cuda.cuModuleLoad(ctypes.byref(module), str(here / "kernel.cubin").encode()) == 0
KINDS = {"s32": ctypes.c_int32, "u32": ctypes.c_uint32, "s64": ctypes.c_int64, "u64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double}
def run(workload, **args):
    """CUDA tensors by name, out tensors written in place; scalars are filled in from the sizes."""
    work = spec["workloads"][workload]; values = {p["name"]: KINDS[p["dtype"]](args.get(p["name"], work["sizes"].get(p["name"], 0))) for p in work["params"] if p["role"] == "scalar"}
    args |= {n: torch.zeros(8 * torch.Size(s["shape"]).numel(), dtype=torch.uint8, device="cuda") for n, s in work["scratch"].items()}
    values |= {n: ctypes.c_void_p(t.data_ptr()) for n, t in args.items() if hasattr(t, "data_ptr")}
    for step in work["launches"]:
        function = ctypes.c_void_p(); assert cuda.cuModuleGetFunction(ctypes.byref(function), module, step["entry"].encode()) == 0
        held = [values[a] if isinstance(a, str) else ctypes.c_int32(a) for a in step["args"]]; table = (ctypes.c_void_p * len(held))(*[ctypes.addressof(v) for v in held])
        assert cuda.cuFuncSetAttribute(function, 8, step["shared_bytes"]) == 0
        assert cuda.cuLaunchKernel(function, *step["grid"], *step["block"], step["shared_bytes"], ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), table, None) == 0
