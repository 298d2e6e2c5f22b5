"""The gates a kernel passes, cheapest first; the first failure ends it with status and message.

lint, compile, prune, identity, smoke, correctness, honesty, quick time, race: docs/evaluation.md
says what each one asks. Every device's kernels are first emulated on the smallest workload with
all checks on, because hardware runs most races and bad accesses "right".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ptxsearch import honesty, toolchain
from ptxsearch.arch import occupancy
from ptxsearch.bounds import (
    MEASURED_SCRATCH,
    MODELLED_SCRATCH,
    check_launches,
    excess_stack,
    excess_variables,
)
from ptxsearch.correctness import check
from ptxsearch.dossier import Dossier
from ptxsearch.emulator.device import EmulatedDevice
from ptxsearch.errors import KernelError
from ptxsearch.evaluation import NEVER_CHARGED, Built, Evaluation, Failure, Inputs, Outputs, Stage
from ptxsearch.expectation import (
    Expected,
    References,
    measure_baseline,
    measured_memory,
    standard_sets,
)
from ptxsearch.identity import identity
from ptxsearch.kernel import ELEMENT_BYTES, BoundLaunch, Kernel
from ptxsearch.measurement import measure
from ptxsearch.protocols import AuditedDevice, BatchDevice, Device
from ptxsearch.ptx import SyntaxFault, lint, parse, sanitise
from ptxsearch.spotcheck import SpotChecker
from ptxsearch.tasks import Task, Workload
from ptxsearch.toolchain import CompileFailure, Compiler

FIRST_TIMEOUT = 10.0
MODELLED_MEMORY = 512 << 20
ATTAINABLE = 0.885
GATE_ELEMENTS = 1 << 14
_REPEATS = 3


class Pipeline:
    """Judges kernels on one device. Thread-safe; equal kernels share one verdict.

    `largest` bounds the elements of a workload whose outputs a modelled device computes; larger
    ones are sampled for their time and spot-checked, and the evidence says so.
    """

    def __init__(
        self,
        device: Device,
        *,
        compiler: Compiler | None = None,
        seed: int = 0,
        largest: int = 1 << 18,
    ) -> None:
        self.device, self.seed, self.largest = device, seed, largest
        self.compiler = compiler or toolchain.default_compiler()
        self.gate = (
            device if isinstance(device, EmulatedDevice) else EmulatedDevice(arch=device.arch)
        )
        self._spots = SpotChecker(self.gate, seed=seed)
        self._known: dict[str, Evaluation] = {}
        self._references: dict[str, References] = {}
        modelled = device.source == "modelled"
        self._memory = MODELLED_MEMORY if modelled else measured_memory()
        self._scratch = MODELLED_SCRATCH if modelled else MEASURED_SCRATCH
        self._lock = threading.Lock()

    def evaluate(
        self,
        task: Task,
        kernel: Kernel,
        *,
        baseline: Kernel | None = None,
        rival: Kernel | None = None,
    ) -> Evaluation:
        """The verdict on `kernel`; times are beside those of `baseline` and `rival` if measured.

        A text judged before has its verdict at once; so has one that compiles to known code.
        """
        values = sorted(kernel.values.items())
        text = self._name(task, f"{task.workloads}{kernel.template}{values}")
        known = self._known.get(text)
        if known is not None:
            return known
        origin = self.device.source
        case = Dossier(task, kernel, baseline, rival, self.device.name, origin)
        case.evidence["toolchain"] = self.compiler.toolchain.name
        stages: tuple[tuple[Stage, Callable[[Dossier], Evaluation | None]], ...] = (
            ("lint", self._bind),
            ("compile", self._compile),
            ("lint", self._lint),
            ("prune", self._prune),
            ("identity", self._identify),
            ("smoke", self._smoke),
            ("correctness", self._correct),
            ("quick", self._time),
        )
        for stage, judge in stages:
            with case.at(stage):
                verdict = judge(case)
            if verdict is not None:
                break
        else:
            verdict = case.verdict("OK", "quick")
        if verdict.status not in NEVER_CHARGED:
            self._known[text] = verdict
            if case.key:
                self._known.setdefault(self._name(task, case.key), verdict)
        return verdict

    def check(self, task: Task, kernel: Kernel) -> Evaluation:
        """The verdict of the stages that cost no device time: lint, compile, prune."""
        case = Dossier(task, kernel, None, None, self.device.name, self.device.source)
        for judge in (self._bind, self._compile, self._lint, self._prune):
            verdict = judge(case)
            if verdict is not None:
                return verdict
        return case.verdict("OK", "prune")

    def ptx(self, kernel: Kernel) -> str | None:
        """The PTX a kernel compiles to, None where it does not."""
        made = self.build(kernel)
        return made.ptx if isinstance(made, Built) else None

    def _bind(self, case: Dossier) -> Evaluation | None:
        if case.kernel.language == "recorded":
            return case.verdict("UNSUPPORTED", "lint", "a recorded kernel has no source to run")
        try:
            check_launches(case.task, case.kernel, whole=self.largest, scratch=self._scratch)
        except KernelError as error:
            return case.verdict("REJECTED", "lint", str(error))
        return None

    def _compile(self, case: Dossier) -> Evaluation | None:
        kernel = case.kernel
        made = self.build(kernel)
        if isinstance(made, CompileFailure):
            return case.verdict("COMPILE_ERROR", "compile", made.text)
        case.built = made
        case.resources = made.resources
        return None

    def build(self, kernel: Kernel) -> Built | CompileFailure:
        """The kernel compiled for the device, its labels sanitised where it is PTX."""
        if kernel.language == "ptx":
            clean = sanitise(kernel.source)
            if clean != kernel.source:
                kernel = Kernel(**{**vars(kernel), "source": clean})
        return toolchain.build(kernel, self.device.arch, compiler=self.compiler)

    def _lint(self, case: Dossier) -> Evaluation | None:
        assert case.built is not None
        module = parse(case.built.ptx)
        if isinstance(module, SyntaxFault):
            return case.verdict("REJECTED", "lint", f"PTX {module}")
        if excess := excess_variables(module):
            return case.verdict("REJECTED", "lint", excess)
        findings = lint(
            module,
            self._launches(case, case.task.smallest),
            allow=case.task.allow,
            sizes=_argument_bytes(case.task, case.kernel),
            arch=self.device.arch,
        )
        if findings:
            return case.verdict("REJECTED", "lint", "; ".join(str(f) for f in findings[:5]))
        return None

    def _launches(self, case: Dossier, workload: Workload) -> tuple[BoundLaunch, ...]:
        return case.kernel.bind(workload.sizes, case.task.names)

    def _prune(self, case: Dossier) -> Evaluation | None:
        for entry, needs in case.resources.items():
            if excess := excess_stack(entry, needs):
                return case.verdict("PRUNED", "prune", excess)
        for workload in case.task.workloads:
            for launch in self._launches(case, workload):
                took = case.resources.get(launch.entry)
                registers = took.registers if took else 16
                shared = launch.shared_bytes + (took.static_shared if took else 0)
                fits = occupancy(self.device.arch, launch.threads, registers, shared)
                if fits.blocks_per_sm < 1:
                    return case.verdict(
                        "PRUNED",
                        "prune",
                        f"a block of {launch.entry} ({launch.threads} threads, {registers} "
                        f"registers a thread, {shared} shared bytes) exceeds a multiprocessor of "
                        f"{self.device.arch} in {fits.limiter}; use less of it",
                    )
        return None

    def _identify(self, case: Dossier) -> Evaluation | None:
        assert case.built is not None
        launches = [
            (workload.name, self._launches(case, workload)) for workload in case.task.workloads
        ]
        name = self.compiler.toolchain.name
        case.key = identity(case.built, launches, arch=self.device.arch, toolchain=name)
        return self._known.get(self._name(case.task, case.key))

    def _name(self, task: Task, key: str) -> str:
        return f"{task.name}:{task.digest}:{key}"

    def _sets(self, case: Dossier, workload: Workload) -> Iterator[Expected]:
        sets = standard_sets(case.task, workload, seed=self.seed)
        with self._lock:
            references = self._references_of(case.task)
            references.prepare(workload, sets)
        for seed, distribution in sets:
            with self._lock:
                expected = references.get(workload, seed, distribution)
            yield expected

    def _references_of(self, task: Task) -> References:
        name = task.name + task.digest
        if name not in self._references:
            run = measure_baseline(task, self.device, self.build)
            self._references[name] = References(task, measure=run, limit=self._memory)
        return self._references[name]

    def _smoke(self, case: Dossier) -> Evaluation | None:
        """Small workloads on the emulator with all checks, then the smallest on the device itself.

        A measured device reads on past an end at an awkward size; the emulator does not.
        """
        smallest = case.task.smallest
        runs: list[tuple[Device, Workload]] = [(self.gate, smallest), (self.device, smallest)]
        if self.device.source == "measured":
            runs[1:1] = [(self.gate, w) for w in self._small(case.task) if w is not smallest]
        distinct = {(id(device), workload.name): (device, workload) for device, workload in runs}
        for device, workload in distinct.values():
            if device is not self.device and "not_emulated" in case.evidence:
                continue
            expected = next(self._sets(case, workload))
            verdict = self._try(case, device, expected)
            if verdict is not None and (verdict.status != "UNSUPPORTED" or device is self.device):
                return verdict
            if verdict is not None:
                case.evidence["not_emulated"] = verdict.message
        return None

    def _small(self, task: Task) -> list[Workload]:
        return [w for w in task.workloads if w.elements <= GATE_ELEMENTS]

    def _runs(
        self, case: Dossier, device: Device, sets: Iterable[Expected]
    ) -> Iterator[tuple[Expected, Outputs | Failure]]:
        """What the candidate leaves on each set in order, up to its first failure.

        A device that runs many at a time takes sets ahead of the results it has given.
        """
        assert case.built is not None
        built = case.built
        taken: deque[Expected] = deque()

        def cases() -> Iterator[tuple[Workload, Inputs]]:
            for expected in sets:
                taken.append(expected)
                yield expected.workload, expected.inputs

        if isinstance(device, BatchDevice):
            results = device.run_all(built, cases(), timeout=FIRST_TIMEOUT)
        else:
            results = (device.run(built, *each, timeout=FIRST_TIMEOUT) for each in cases())
        for got in results:
            yield taken.popleft(), got

    def _try(self, case: Dossier, device: Device, expected: Expected) -> Evaluation | None:
        """One set with every question asked; on hardware again, on other junk."""
        once = device.source == "modelled" or "atomics_order" in case.task.allow
        runs = self._runs(case, device, [expected] * (1 if once else _REPEATS))
        _, first = next(runs)
        verdict = self._judge(case, first, expected, "smoke")
        if verdict is not None or isinstance(first, Failure):
            return verdict
        return self._honest(case, first, expected) or self._repeat(
            case, first, (again for _, again in runs)
        )

    def _judge(
        self, case: Dossier, got: Outputs | Failure, expected: Expected, stage: Stage
    ) -> Evaluation | None:
        """Compare every element of what one set gave; None where it is right."""
        if isinstance(got, Failure):
            return case.failed(got, stage)
        if got.inputs_changed:
            names = ", ".join(got.inputs_changed)
            return case.verdict("WRONG", stage, f"the kernel wrote to its input {names}")
        verdict = check(case.task, got, expected)
        worst = case.evidence.setdefault("error_over_tolerance", {})
        for name, error in verdict.errors.items():
            worst[name] = max(worst.get(name, 0.0), min(error, 1e300))
        if not verdict.passed:
            case.evidence["share_right"] = verdict.share_right
            case.evidence["pattern"] = verdict.pattern
            return case.verdict("WRONG", stage, verdict.message)
        return None

    def _honest(self, case: Dossier, got: Outputs, expected: Expected) -> Evaluation | None:
        """Work that must have been done: bytes stored, operations, inputs that were read."""
        findings = honesty.judge(case.task, expected, got)
        notes = [finding.message for finding in findings if not finding.dishonest]
        if notes:
            case.evidence["notes"] = notes
        proofs = [finding.message for finding in findings if finding.dishonest]
        return case.verdict("DISHONEST", "honesty", "; ".join(proofs)) if proofs else None

    def _repeat(
        self, case: Dossier, first: Outputs, runs: Iterator[Outputs | Failure]
    ) -> Evaluation | None:
        """Runs on other junk must give the same bits."""
        for again in runs:
            if isinstance(again, Failure):
                return case.failed(again, "smoke")
            for name, array in first.arrays.items():
                if array.tobytes() != again.arrays[name].tobytes():
                    return case.verdict(
                        "WRONG",
                        "smoke",
                        f"output {name} differs between runs on equal inputs: a race, an "
                        "uninitialised read, or an order of atomics the task does not allow",
                    )
        return None

    def _correct(self, case: Dossier) -> Evaluation | None:
        for expected, got in self._runs(case, self.device, self._standard(case)):
            verdict = self._judge(case, got, expected, "correctness")
            if verdict is not None:
                return verdict
        return None

    def _standard(self, case: Dossier) -> Iterator[Expected]:
        """The standard sets of every workload that the device computes in full."""
        for workload in case.task.workloads:
            if self.device.source == "modelled" and workload.elements > self.largest:
                case.evidence.setdefault("outputs_not_checked", []).append(workload.name)
                continue
            yield from self._sets(case, workload)

    def _time(self, case: Dossier) -> Evaluation | None:
        gpu = self.gate.gpu
        floors = [honesty.floor(case.task, workload, gpu).seconds for workload in case.task.timed]
        attainable = [self._attainable(case.task, workload) for workload in case.task.timed]
        case.evidence["floor_seconds"] = geometric_mean(floors)
        case.evidence["attainable_seconds"] = geometric_mean(attainable)
        if isinstance(self.device, AuditedDevice):
            # What an earlier kernel left before it failed is not this one's.
            self.device.audit()
        verdict = measure(self.device, case, self.build)
        return verdict or self._skipped(case) or self._spot(case) or self._audit(case)

    def _spot(self, case: Dossier) -> Evaluation | None:
        """Modelled sizes that were not computed in full are judged by blocks chosen at random."""
        assert case.built is not None
        unchecked = case.evidence.get("outputs_not_checked", ())
        for workload in case.task.timed:
            if workload.name not in unchecked or not self.gate.prepared(case.task, workload):
                continue
            counters = case.counters.get(workload.name)
            found = self._spots.judge(case.task, workload, case.built, counters)
            if isinstance(found, Failure):
                return case.failed(found, "quick")
            if found.status != "OK":
                return case.verdict(found.status, "quick", found.message)
            case.evidence.setdefault("outputs_sampled", {})[workload.name] = found.compared
        return None

    def _skipped(self, case: Dossier) -> Evaluation | None:
        """A time below the speed of light is noted, and dishonest where counters confirm it."""
        assert case.built is not None
        for workload in case.task.timed:
            if workload.name not in case.times:
                continue
            seconds = case.times[workload.name].median
            suspicion = honesty.below_floor(case.task, workload, seconds, self.gate.gpu)
            if suspicion is None:
                continue
            counters = case.counters.get(workload.name)
            counters = counters or self.device.profile(case.built, workload)
            proof = honesty.confirm(case.task, workload, counters)
            if proof is not None:
                message = f"{suspicion.message}; {proof.message}"
                return case.verdict("DISHONEST", "quick", message)
            case.evidence.setdefault("notes", []).append(suspicion.message)
        return None

    def _attainable(self, task: Task, workload: Workload) -> float:
        """Seconds at the rates a good kernel reaches: `ATTAINABLE` of both theoretical peaks."""
        least = honesty.floor(task, workload, self.gate.gpu)
        moved = task.amount("bytes_in", workload) + task.amount("bytes_out", workload)
        memory = moved / self.gate.gpu.bandwidth
        return max(memory, least.compute_seconds) / ATTAINABLE

    def _audit(self, case: Dossier) -> Evaluation | None:
        """Outputs of timed launches must be as right as those of checked ones."""
        if not isinstance(self.device, AuditedDevice):
            return None
        for side, inputs, outputs in self.device.audit():
            if side:
                continue
            with self._lock:
                expected = self._references_of(case.task).of(inputs)
            verdict = check(case.task, outputs, expected)
            if not verdict.passed or outputs.inputs_changed:
                return case.verdict(
                    "DISHONEST",
                    "quick",
                    "a timed launch gave other outputs than a checked one: "
                    + (verdict.message or "its inputs were written"),
                )
        return None


def _argument_bytes(task: Task, kernel: Kernel) -> dict[str, int]:
    """Bytes of each named argument in the parameter block."""
    sizes = {p.name: ELEMENT_BYTES[p.dtype] if p.role == "scalar" else 8 for p in task.params}
    sizes |= {buffer.name: 8 for buffer in kernel.scratch}
    return sizes | {tensor.name: 128 for tensor in kernel.tensor_maps}


def geometric_mean(values: list[float]) -> float:
    """The geometric mean of positive numbers, 0 where one is 0."""
    return float(np.exp(np.mean(np.log(values)))) if min(values) > 0 else 0.0
