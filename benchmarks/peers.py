"""Other tuners on a recorded space: the order in which each would have measured configurations.

Counting is the same for all: the first measurement of a recorded configuration is one evaluation,
failures included; repeats and proposals that a restriction forbids are free, but a tuner that
makes more than twelve calls an evaluation of its budget is cut off.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from kernel_tuner import util  # type: ignore[import-untyped]
from kernel_tuner.interface import Options, strategy_map  # type: ignore[import-untyped]
from kernel_tuner.runners.simulation import SimulationRunner  # type: ignore[import-untyped]
from kernel_tuner.searchspace import Searchspace  # type: ignore[import-untyped]
from kernel_tuner.strategies import bayes_opt  # type: ignore[import-untyped]
from kernel_tuner.strategies.common import CostFunc  # type: ignore[import-untyped]

from ptxsearch.interchange import Table

KERNEL_TUNER = (
    "adaptive_tabu_greywolf",
    "genetic_algorithm",
    "pso",
    "hybrid_vndx",
    "firefly_algorithm",
    "diff_evo",
    "simulated_annealing",
    "dual_annealing",
    "random_sample",
    "basinhopping",
    "minimize",
    "mls",
    "ordered_greedy_mls",
    "greedy_mls",
    "greedy_ils",
)
SLOW = ("bayes_opt", "bayes_opt (mended)", "optuna TPE", "optuna GP")
STRATEGIES = (*KERNEL_TUNER, *SLOW)
CALLS_AN_EVALUATION = 12


def missing() -> dict[str, str]:
    """The strategies that cannot run here, each with the package it lacks."""
    return {} if importlib.util.find_spec("torch") else {"optuna GP": "torch"}


class Ledger:
    """Counts evaluations and calls, and keeps the rows in the order of their first measurement."""

    def __init__(self, table: Table, budget: int) -> None:
        self._place = {tuple(map(int, row)): i for i, row in enumerate(table.rows)}
        self._space = table.space
        self._limit = min(budget, len(table.rows))
        self._seen: set[int] = set()
        self.order: list[int] = []
        self.calls = 0
        self._calls_limit = CALLS_AN_EVALUATION * budget

    @property
    def spent(self) -> bool:
        """Whether the budget of evaluations or that of calls is used up."""
        return len(self.order) >= self._limit or self.calls >= self._calls_limit

    def call(self, values: dict[str, Any]) -> int | None:
        """The row of a legal configuration, counted; None for an illegal one."""
        self.calls += 1
        i = self._place.get(self._space.row(values))
        if i is not None and i not in self._seen and len(self.order) < self._limit:
            self._seen.add(i)
            self.order.append(i)
        return i


def run(strategy: str, table: Table, *, seed: int, budget: int) -> list[int]:
    """The rows of `table` in the order in which `strategy` measures them.

    Every strategy runs with its own defaults and knows the budget. Left out of STRATEGIES:
    brute_force, those that need further packages (skopt, pyatf_strategies), and nsga2 and nsga3,
    which are for several objectives.
    """
    ledger = Ledger(table, budget)
    random.seed(seed)
    np.random.seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if strategy.startswith("optuna"):
            _optuna(strategy, table, ledger, seed=seed)
        else:
            _kernel_tuner(strategy, table, ledger, budget=budget)
    return ledger.order


class _Runner(SimulationRunner):  # type: ignore[misc]
    """The package's own simulation, stopped where the calls run out."""

    ledger: Ledger

    def run(self, parameter_space: Any, tuning_options: Any) -> Any:
        configurations = [tuple(element) for element in parameter_space]
        if self.ledger.calls >= self.ledger._calls_limit:
            raise util.StopCriterionReached("only repeats are left")
        names = list(tuning_options.tune_params)
        for element in configurations:
            if tuning_options.budget.max_fevals > len(self.ledger.order):
                self.ledger.call(dict(zip(names, element, strict=True)))
        return super().run(configurations, tuning_options)


class _MendedCostFunc(CostFunc):  # type: ignore[misc]
    """A failure costs what bayes_opt takes for one (1e20), not the largest float."""

    def eval_all(self, xs: Any, check_restrictions: bool = True) -> Any:
        costs = super().eval_all(xs, check_restrictions=check_restrictions)
        return [1e20 if cost == sys.float_info.max else cost for cost in costs]


@contextlib.contextmanager
def _mended() -> Iterator[None]:
    shipped = bayes_opt.CostFunc
    bayes_opt.CostFunc = _MendedCostFunc
    try:
        yield
    finally:
        bayes_opt.CostFunc = shipped


def _cache(table: Table) -> dict[str, dict[str, Any]]:
    failures = {"COMPILE_ERROR": util.CompilationFailedConfig()}
    cache = {}
    for i in np.lexsort(table.rows.T[::-1]):
        row, seconds, verdict = table.rows[i], table.seconds[i], table.verdicts[i]
        values = table.space.values(row)
        entry: dict[str, Any] = dict(values)
        if np.isfinite(seconds):
            entry["time"] = float(seconds) * 1e3
        else:
            failure = failures.get(verdict[0], util.RuntimeFailedConfig())
            entry["time"] = entry["__error__"] = failure
        cache[",".join(map(str, values.values()))] = entry
    return cache


_CACHES: dict[str, dict[str, dict[str, Any]]] = {}


def _kernel_tuner(strategy: str, table: Table, ledger: Ledger, *, budget: int) -> None:
    cache = _CACHES.setdefault(table.name, _cache(table))
    params = {name: list(values) for name, values in table.space.params.items()}
    # A fresh search space for every run: its neighbour caches are used up by the run before.
    space = Searchspace(None, None, None, from_cache={"tune_params": params, "cache": cache})
    most = min(budget, space.size)
    options = Options(
        tune_params=params,
        strategy_options=Options(max_fevals=most),
        objective=["time"],
        objective_higher_is_better=[False],
        budget=util.TuningBudget(None, most),
        cache=cache,
        restrictions=None,
        restrictions_unmodified=None,
        metrics=None,
        verbose=False,
        max_fevals=most,
        seed=None,
    )
    device = Options(quiet=True)
    runner = _Runner(None, Options(kernel_name=table.name), device, 1, [])
    runner.ledger = ledger
    name = "bayes_opt" if strategy.startswith("bayes_opt") else strategy
    with _mended() if strategy.endswith("(mended)") else contextlib.nullcontext():
        strategy_map[name].tune(space, runner, options)


def _optuna(strategy: str, table: Table, ledger: Ledger, *, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers: dict[str, Callable[..., Any]] = {
        "optuna TPE": optuna.samplers.TPESampler,
        "optuna GP": optuna.samplers.GPSampler,
    }
    study = optuna.create_study(sampler=samplers[strategy](seed=seed))
    while not ledger.spent:
        trial = study.ask()
        values = {
            name: trial.suggest_categorical(name, list(choices))
            if any(isinstance(choice, str) for choice in choices)
            else choices[trial.suggest_int(name, 0, len(choices) - 1)]
            for name, choices in table.space.params.items()
        }
        i = ledger.call(values)
        seconds = np.nan if i is None else table.seconds[i]
        if np.isfinite(seconds):
            study.tell(trial, float(seconds))
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
