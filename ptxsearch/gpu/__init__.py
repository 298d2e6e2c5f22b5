"""NVIDIA GPUs: run, time, profile and certify kernels on hardware through the CUDA driver.

Reading order: `device` (what callers use), `several` (many of them as one), `process` and `worker`
(the killable child and what it does), `checks` and `batches` (what a kernel left, many sets at a
time), `memory` (guarded buffers), `sequence` (launches bound to buffers), `timing` (the sampling
order), `instruments` (our own small kernels), `driver` (the calls), `faults` (what a code means),
`case`, `ncu` and `sanitizer` (kernels under NVIDIA's tools), `final` (the closing evidence).
"""

from __future__ import annotations

from ptxsearch.gpu.device import CudaDevice, devices
from ptxsearch.gpu.several import CudaDevices

__all__ = ["CudaDevice", "CudaDevices", "devices"]
