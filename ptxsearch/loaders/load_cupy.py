"""Run the exported kernel on CuPy arrays: `run("full", x=x, out=out)` writes into `out`."""
import json, pathlib, cupy, numpy as np

here = pathlib.Path(__file__).parent
module = cupy.RawModule(path=str(here / "kernel.cubin"))

def run(workload, **given):
    """Launch the kernel on the current stream; `given` are its arrays and, if need be, scalars."""
    work = json.loads((here / "launch.json").read_text())["workloads"][workload]
    known = {p["name"]: np.dtype(p["numpy"]).type(given.get(p["name"], p["value"])) for p in work["scalars"]}
    known = {p["name"]: cupy.zeros(p["shape"], p["numpy"]) for p in work["scratch"]} | given | known
    for step in work["launches"]:
        entry = module.get_function(step["entry"])
        entry.max_dynamic_shared_size_bytes = step["shared_bytes"]
        values = tuple(known.get(a, a) for a in step["args"])
        entry(tuple(step["grid"]), tuple(step["block"]), values, shared_mem=step["shared_bytes"])
