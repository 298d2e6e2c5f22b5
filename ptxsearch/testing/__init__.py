"""Partners for tests of code that uses ptxsearch, and conformance tests for what extends it."""

from ptxsearch.testing.conformance import (
    DeviceConformance,
    LLMConformance,
    ProposerConformance,
    StoreConformance,
)
from ptxsearch.testing.fake import FakeDevice
from ptxsearch.testing.loopback import Answer, Loopback
from ptxsearch.testing.scripted import Call, ScriptedLLM

__all__ = [
    "Answer",
    "Call",
    "DeviceConformance",
    "FakeDevice",
    "LLMConformance",
    "Loopback",
    "ProposerConformance",
    "ScriptedLLM",
    "StoreConformance",
]
