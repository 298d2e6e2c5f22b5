"""Exceptions: for a user's or a machine's mistake, never for a bad kernel (that is a status).

PtxsearchError
 +-- UserError              the caller can mend it (exit code 2)
 |    +-- TaskError          an unknown, malformed or too weak task
 |    +-- KernelError        a kernel record or kernel file that cannot be used
 |    +-- ExpressionError    an expression outside the small language
 |    +-- SpaceError         a parameter space that cannot exist
 |    +-- PolicyError        an unknown or malformed policy
 |    +-- RecordingError     a recording or result file that cannot be read
 |    +-- UsageError         an argument outside what is allowed
 +-- MachineError           a part of the machine failed (exit code 3)
      +-- ToolchainError     a compiler is missing or cannot be used
      +-- DeviceError        no such device, or it stopped answering
      +-- StoreError         a store that cannot be opened, read or written
      +-- ProviderError      the LLM's server refused or went away
           +-- ProviderPaused  it may come back: the run can be resumed
"""

from __future__ import annotations


class PtxsearchError(Exception):
    """The root: `message` says what was wrong and what was got, `remedy` what to do next."""

    exit_code = 3

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class UserError(PtxsearchError):
    """The caller can mend it."""

    exit_code = 2


class TaskError(UserError):
    """A task is unknown, malformed or too weak to judge a kernel."""


class KernelError(UserError):
    """A kernel record or kernel file cannot be used."""


class ExpressionError(UserError):
    """An expression is outside the small language or names an unknown size."""


class SpaceError(UserError):
    """A parameter space cannot exist."""


class PolicyError(UserError):
    """A policy is unknown or malformed."""


class RecordingError(UserError):
    """A recording or a result file cannot be read."""


class UsageError(UserError):
    """An argument is outside what is allowed."""


class MachineError(PtxsearchError):
    """A part of the machine failed."""

    exit_code = 3


class ToolchainError(MachineError):
    """A compiler is missing or cannot be used."""


class DeviceError(MachineError):
    """There is no such device, or it stopped answering."""


class StoreError(MachineError):
    """A store cannot be opened, read or written."""


class ProviderError(MachineError):
    """The LLM's server refused or went away."""


class ProviderPaused(ProviderError):
    """The LLM's server is down for now; the run can be resumed."""
