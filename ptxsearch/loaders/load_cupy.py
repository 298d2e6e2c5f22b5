"""Run the exported kernel with CuPy: `from load_cupy import run; run("full", x=x, out=out)`."""
import json, pathlib, numpy as np, cupy
here = pathlib.Path(__file__).parent; spec = json.loads((here / "launch.json").read_text())
module = cupy.RawModule(path=str(here / "kernel.cubin"))
def run(workload, **args):
    """CuPy arrays by name, out arrays written in place; scalars are filled in from the sizes."""
    work = spec["workloads"][workload]
    args |= {p["name"]: np.array(work["sizes"].get(p["name"], 0), p["dtype"].replace("s", "i").replace("32", "4").replace("64", "8")) for p in work["params"] if p["role"] == "scalar" and p["name"] not in args}
    args |= {n: cupy.zeros(int(np.prod(s["shape"])) * 8, np.uint8) for n, s in work["scratch"].items()}
    for step in work["launches"]:
        function = module.get_function(step["entry"]); function.max_dynamic_shared_size_bytes = step["shared_bytes"]
        function(tuple(step["grid"]), tuple(step["block"]), tuple(args[a] if isinstance(a, str) else np.int32(a) for a in step["args"]), shared_mem=step["shared_bytes"])
