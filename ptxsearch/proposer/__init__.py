"""A language model, or several, as a proposer of kernels."""

from ptxsearch.proposer.model import Hooks, LLMProposer

__all__ = ["Hooks", "LLMProposer"]
