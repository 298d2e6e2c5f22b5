"""One CUDA device for all tests here; without one they are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxsearch.gpu import CudaDevice, devices


@pytest.fixture(scope="session")
def gpu() -> Iterator[CudaDevice]:
    """The first visible device."""
    if not devices():
        pytest.skip("no CUDA device is visible")
    device = CudaDevice()
    yield device
    device.close()
