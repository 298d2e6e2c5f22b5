"""What a model is sent: PLAN, IMPLEMENT and repair requests, rendered from versioned templates.

Order: contract and GPU card, then the task (one prefix, byte-identical through a run), then what
changes: memo of the run, the node's lineage, code, feedback and tried children, the request.
Nothing here reads a clock or a random number; equal trees give equal text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from ptxsearch.arch import find_arch, typical_gpu
from ptxsearch.evaluation import Evaluation
from ptxsearch.feedback import duration, failure, feedback
from ptxsearch.kernel import Idea, Kernel
from ptxsearch.prompt.memo import child_lines, lineage_lines, memo_lines, partner_for, partner_of
from ptxsearch.protocols import Message
from ptxsearch.reply.answer import fenced, written
from ptxsearch.tasks import Task, Workload
from ptxsearch.tree import Node, TreeView

Purpose = Literal["plan", "implement"]
TOKEN_BUDGET = 24_000
CHARACTERS_PER_TOKEN = 3.0
PATCH_ABOVE = 300


@dataclass(frozen=True)
class Brief:
    """The fixed facts of a run that prompts depend on.

    `compiled` gives the PTX of a kernel where the language is "ptx" and the parent is CUDA C++,
    None where it does not compile.
    """

    language: Literal["cuda", "ptx", "both"] = "cuda"
    arch: str = "sm_90"
    ideas: int = 8
    budget: int = TOKEN_BUDGET
    compiled: Callable[[Kernel], str | None] | None = None


def render(
    task: Task,
    view: TreeView,
    node: Node,
    *,
    purpose: Purpose = "plan",
    idea: Idea | None = None,
    brief: Brief | None = None,
) -> list[Message]:
    """The messages that ask for ideas at `node`, or for the kernel of one idea."""
    brief = brief or Brief()
    system = prefix(task, brief)
    if purpose == "implement" and idea is not None:
        request = _implement(node, idea, brief)
    else:
        request = _plan(view, node, brief)
    fixed = [_code_section(node, brief), request]
    if idea is not None and idea.kind == "cross" and (partner := partner_for(view, node, idea)):
        fixed.insert(1, _partner_section(partner))
    room = brief.budget - tokens(system) - sum(tokens(text) for text in fixed)
    memo, lineage, verdict, tried = _fit(_optional(task, view, node, brief), room)
    parts = [memo, lineage, fixed[0], verdict, tried, *fixed[1:]]
    user = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def prefix(task: Task, brief: Brief) -> str:
    """Contract, GPU card and task: the part that never changes within a run."""
    language = fill(brief.language, arch=brief.arch)
    contract = fill("contract", language=language)
    return "\n\n".join((contract, _card(brief.arch), _task_section(task)))


def repair(
    messages: Sequence[Message], answer: str, evaluation: Evaluation, *, advice: str = ""
) -> list[Message]:
    """The conversation goes on: the answer, its verdict, and the request to mend it."""
    details = fenced("\n".join(failure(evaluation, most=40)[1:]), "text")
    text = fill(
        "repair",
        status=evaluation.status,
        stage=f" at {evaluation.stage}" if evaluation.stage else "",
        details=details,
        advice=f"{advice} " if advice else "",
    )
    return [
        *messages,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": text},
    ]


def plan_again(messages: Sequence[Message], answer: str, reason: str) -> list[Message]:
    """The conversation goes on after a plan that could not be read."""
    text = fill("plan_again", details=reason)
    return [
        *messages,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": text},
    ]


def tokens(text: str) -> int:
    """An estimate that errs high: three characters a token."""
    return int(len(text) / CHARACTERS_PER_TOKEN) + 1


@cache
def template(name: str) -> str:
    """A template's text without its version line."""
    text = resources.files("ptxsearch").joinpath("prompts", f"{name}.txt").read_text("utf-8")
    return text.split("\n", 1)[1].strip("\n")


@cache
def version() -> str:
    """Twelve digits that change when any template changes; stored with every exchange."""
    folder = resources.files("ptxsearch").joinpath("prompts")
    texts = sorted(
        (entry.name, entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".txt")
    )
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:12]


def fill(name: str, **values: str) -> str:
    """A template with each `{{key}}` replaced; values are not searched for keys again."""
    pieces = template(name).split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        key, _, rest = piece.partition("}}")
        filled += [values[key], rest]
    return "".join(filled)


def _card(arch: str) -> str:
    limits, gpu = find_arch(arch), typical_gpu(arch)
    lines = [
        f"GPU: {gpu.name if gpu else 'unknown model'}, {limits.name}",
        f"- per multiprocessor: {limits.warps_per_sm} warps, {limits.blocks_per_sm} blocks, "
        f"{limits.registers_per_sm:,} registers, {limits.shared_per_sm // 1024} KB shared memory; "
        f"{limits.fp32_lanes} fp32 multiply-adds a cycle, {limits.shared_bytes_per_cycle} bytes of "
        "shared memory a cycle in 32 banks of 4 bytes",
        f"- per block: {limits.threads_per_block} threads, {limits.shared_per_block // 1024} KB "
        f"shared memory (48 KB static); {limits.registers_per_thread} registers a thread"
        + (f"; clusters up to {limits.cluster_blocks}" if limits.cluster_blocks > 1 else ""),
    ]
    if gpu is not None:
        lines.append(
            f"- {gpu.sms} multiprocessors at {gpu.clock / 1e9:.2f} GHz, "
            f"{gpu.bandwidth / 1e9:,.0f} GB/s DRAM, {gpu.l2_bytes >> 20} MB L2, "
            f"{gpu.fp32_peak / 1e12:.0f} TFLOP/s fp32 "
            f"({gpu.fp32_peak / gpu.bandwidth:.0f} operations for each byte of DRAM)"
        )
    return "\n".join(lines)


def _task_section(task: Task) -> str:
    lines = [f"Task: {task.name}", task.description.strip(), "", "Parameters, in entry order:"]
    for param in task.params:
        shape = f"[{', '.join(param.shape)}]" if param.shape else f"= {param.init or param.name}"
        domain = f", {param.domain}" if param.domain != "any" else ""
        lines.append(f"- {param.name}: {param.role} {param.dtype} {shape}{domain}")
    lines += ["", "Sizes (others are checked too, hidden ones among them):"]
    lines += [_workload_line(task, workload) for workload in task.workloads if workload.public]
    scales = {param.name: task.scale_of(param.name) for param in task.outputs}
    meaning = {"exact": "equal to the reference", "relative": "small relative error"}
    lines.append(
        "\nOutputs must be: "
        + "; ".join(
            f"{name}: {meaning.get(scale, 'within the rounding of its dtype')}"
            for name, scale in scales.items()
        )
    )
    if "atomics_order" in task.allow:
        lines.append("Results that depend on the order of atomics are allowed.")
    return "\n".join(lines)


def _workload_line(task: Task, workload: Workload) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in workload.sizes.items())
    if workload not in task.timed:
        return f"- {workload.name}: {sizes}"
    moved = task.amount("bytes_in", workload) + task.amount("bytes_out", workload)
    work = task.amount("flops_min", workload)
    return f"- {workload.name}: {sizes}; TIMED; at least {moved:,.0f} bytes" + (
        f" and {work:,.0f} operations" if work else ""
    )


def _optional(task: Task, view: TreeView, node: Node, brief: Brief) -> list[list[str]]:
    """Memo, lineage, feedback and tried children, each as lines under a heading."""
    parent = view[node.parents[0].parent] if node.parents else None
    verdict: list[str] = []
    if node.evaluation is not None:
        verdict = list(
            feedback(
                node.evaluation,
                parent.evaluation if parent is not None else None,
                task=task,
                kernel=node.kernel,
                parent_kernel=parent.kernel if parent is not None else None,
                arch=brief.arch,
            )
        )
    return [
        _headed("What the run has learned so far:", memo_lines(view)),
        _headed("How this kernel came about:", lineage_lines(view, node)),
        _headed("Feedback on this kernel:", verdict),
        _headed("Tried on this kernel already:", child_lines(view, node)),
    ]


def _headed(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, *lines] if lines else []


def _fit(sections: list[list[str]], room: int) -> list[str]:
    """The sections as text within `room` tokens, dropped in a fixed order, code untouched.

    First the oldest tried children go, then the least of the memo, then the lineage from the root
    on, then the end of the feedback. What tools and kernels said is fenced.
    """
    memo, lineage, verdict, tried = ([*section] for section in sections)

    def size() -> int:
        return sum(tokens("\n".join(section)) for section in (memo, lineage, verdict, tried))

    for section, place in ((tried, 1), (memo, -1), (lineage, 1), (verdict, -1)):
        while section and size() > room:
            del section[place]
            if len(section) == 1:
                section.clear()
    return ["\n".join(memo), "\n".join(lineage), _quoted(verdict), _quoted(tried)]


def _quoted(section: Sequence[str]) -> str:
    return f"{section[0]}\n{fenced(chr(10).join(section[1:]), 'text')}" if section else ""


def _code_section(node: Node, brief: Brief) -> str:
    kernel = node.kernel
    if kernel is None:
        return "There is no kernel yet."
    title = "the baseline" if node.id == 0 else f"kernel #{node.id}"
    parts = [f"The kernel to improve is {title}:", written(kernel)]
    if brief.language == "ptx" and kernel.language == "cuda" and brief.compiled is not None:
        ptx = brief.compiled(kernel)
        if ptx:
            parts += ["As PTX, compiled with the first values:", fenced(ptx, "ptx")]
    return "\n\n".join(parts)


def _partner_section(partner: Node) -> str:
    assert partner.kernel is not None
    return f"The other kernel, #{partner.id} ({partner.edit.summary}):\n\n{written(partner.kernel)}"


def _plan(view: TreeView, node: Node, brief: Brief) -> str:
    partner = partner_of(view, node)
    cross = ""
    if partner is not None and partner.evaluation is not None:
        cross = (
            f" Kernel #{partner.id} of another branch ({partner.edit.strategy}: "
            f"{partner.edit.summary}) runs in {duration(partner.evaluation.seconds)}; an idea of "
            f"kind cross may combine it with this one: name it as #{partner.id} in the title."
        )
    return fill("plan", ideas=str(brief.ideas), cross=cross)


def _implement(node: Node, idea: Idea, brief: Brief) -> str:
    kernel = node.kernel
    long = kernel is not None and kernel.source.count("\n") >= PATCH_ABOVE
    if long and kernel is not None and kernel.language == "cuda" and brief.language != "ptx":
        form = fill("form_patch")
    else:
        tag = kernel.language if kernel and brief.language == "both" else brief.language
        form = fill("form_whole", tag=tag)
    return fill("implement", idea=_idea_text(idea), form=form)


def _idea_text(idea: Idea) -> str:
    lines = [f"{idea.title} [{idea.strategy}]"]
    named: Mapping[str, object] = {
        "mechanism": idea.mechanism,
        "relieves": idea.limiter,
        "parameters": ", ".join(f"{name}={value}" for name, value in idea.parameters.items()),
        "risk": idea.risk,
    }
    lines += [f"{name}: {value}" for name, value in named.items() if value]
    return fenced("\n".join(lines), "text")
