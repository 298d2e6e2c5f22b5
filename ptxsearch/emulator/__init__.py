"""PTX executed with numpy: true outputs, faults and exact counts without a GPU.

`load` gives a module whose entries can be launched; `emulate` is one launch. Reading order:
`module`, `launch`, `machine` and `waiting` (scheduling), `translate` and `code` (what runs),
`instructions` (who builds which step), `address`, `access` and `shadow` (memory and races),
`ordering`, `synchron` and `clock` (what is ordered before what), `taint` and `definedness`
(undefined bytes), `findings` (faults).
"""

from __future__ import annotations

from ptxsearch.emulator.arguments import undefined
from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.emulator.module import Module, emulate, load
from ptxsearch.emulator.report import Fault, Report, Unsupported

__all__ = [
    "EmulatedDevice",
    "Fault",
    "Module",
    "Report",
    "Unsupported",
    "emulate",
    "load",
    "undefined",
]
