"""GPU kernels made fast by search, with verdicts you can reproduce.

    result = ptxsearch.optimize(ptxsearch.load_task("level1/transpose"), llm=None)

Reading order: `protocols` (every extension point), `kernel`, `tasks` and `evaluation` (the
records), `search` (the algorithm) with `run`, `tree`, `selection`, `tuning` and `reward`,
`pipeline` (the gates a kernel passes) with `correctness`, `honesty` and `measurement`, `menu`,
`tuner` and `proposer` (who proposes), `ptx`, `emulator` and `gpu` (what runs), `toolchain`
(compilers), `store` and `journal` (what is kept), `api` and `cli` (what a user calls).
"""

from ptxsearch import emulator, gpu, replay
from ptxsearch.api import evaluate, optimize
from ptxsearch.budget import Budget
from ptxsearch.errors import PtxsearchError
from ptxsearch.evaluation import Evaluation
from ptxsearch.kernel import Kernel, Launch, Scratch
from ptxsearch.policy import Policy
from ptxsearch.search import Search
from ptxsearch.space import Space
from ptxsearch.taskfile import load_task
from ptxsearch.tasks import Param, Task, Workload, task
from ptxsearch.trial import Result
from ptxsearch.verification import verify

__all__ = [
    "Budget",
    "Evaluation",
    "Kernel",
    "Launch",
    "Param",
    "Policy",
    "PtxsearchError",
    "Result",
    "Scratch",
    "Search",
    "Space",
    "Task",
    "Workload",
    "emulator",
    "evaluate",
    "gpu",
    "load_task",
    "optimize",
    "replay",
    "task",
    "verify",
]
