"""Where the time of a step goes, with so many requests decoding and so many prompt tokens beside them.

    schedule | inputs | program: GEMM, attention, ... | head | sampling | update | delivery

One stopwatch is always in exactly one part, so the parts add up to the step. It is pressed around every kernel call,
which then come from Python one by one; the same steps as a server takes them, in one call, are `plain_step_ms`.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from evenflow.core.errors import ConfigError
from evenflow.core.plan import StepOutcome, StepPlan
from evenflow.core.ports import Executor
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.memory import available_memory
from evenflow.engine.messages import Add, StepResult
from evenflow.engine.transport import encode
from evenflow.executors.torch.build import LoadedTorchModel, load
from evenflow.executors.torch.executor import TorchExecutor
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.executors.torch.program import CallByCall
from evenflow.kernels.abi import KernelTable
from evenflow.models.llama import LlamaModel

_WARM_UP_STEPS = 3
_LEAST_PROMPT_TOKENS = 256  # a step has room for these while the first prompts are computed
_BETWEEN = "between the kernels, here"
_KERNELS = {
    "int8_gemm": "GEMM",
    "bf16_gemm": "GEMM",
    "attention": "attention",
    "rotary": "rotary and KV write",
    "rms_norm": "norms, with quantisation",
    "gated": "gates, with quantisation",
    "quantise": "quantisation",
    "embed": "embedding and last sum",
    "add": "embedding and last sum",
}
PARTS = (
    "schedule",
    "inputs",
    *dict.fromkeys(_KERNELS.values()),
    _BETWEEN,
    "head",
    "sampling",
    "update",
    "delivery",
)


@dataclass(frozen=True, slots=True)
class Profile:
    """Means over `steps` steps, in milliseconds. `parts_ms` adds up to `step_ms`."""

    settings: dict[str, str]
    steps: int
    parts_ms: dict[str, float]
    step_ms: float
    plain_step_ms: float


@dataclass(frozen=True, slots=True)
class Scene:
    """`context` is the prompt length of each request that decodes."""

    running: int
    prefill: int
    context: int
    steps: int

    @property
    def most_tokens_of_a_step(self) -> int:
        return self.running + max(self.prefill, _LEAST_PROMPT_TOKENS)

    @property
    def most_decoded(self) -> int:
        """By the request that was first to have its prompt computed."""
        prompt_steps = -(-self.running * self.context // _LEAST_PROMPT_TOKENS) + 1
        return prompt_steps + _WARM_UP_STEPS + self.steps


class Stopwatch:
    """Always in one part, once it has entered the first."""

    __slots__ = ("_part", "_since", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._part = ""
        self._since = time.perf_counter()

    def enter(self, part: str) -> None:
        now = time.perf_counter()
        self.seconds[self._part] += now - self._since
        self._part, self._since = part, now


def measure(config: EngineConfig, scene: Scene, *, progress: Callable[[str], None] = lambda what: None) -> Profile:
    """Raises ConfigError where the decoder is no program of kernels, or memory is too small for the scene."""
    progress("loading the model")
    model = load(
        config.model,
        dtype=config.dtype.value,
        quantize=config.quantize.value,
        kv_dtype=config.kv_dtype.value,
        threads=config.threads,
        seed=config.seed,
    )
    stopwatch = Stopwatch()
    progress("measuring whole steps")
    plain_seconds = _Stage(_core(config, scene, model, NativeLlama, lambda executor: executor), scene).run(Stopwatch())
    progress("measuring parts of steps")
    timed = _core(config, scene, model, _timed_llama(stopwatch), lambda inner: _TimedExecutor(inner, stopwatch))
    _Stage(timed, scene).run(stopwatch)
    if "GEMM" not in stopwatch.seconds:
        raise ConfigError("this configuration runs in torch, not as a program of kernels; try quantize int8")
    parts = {part: stopwatch.seconds[part] * 1e3 / scene.steps for part in PARTS if part in stopwatch.seconds}
    return Profile(dict(model.description), scene.steps, parts, sum(parts.values()), plain_seconds * 1e3 / scene.steps)


def _core(
    config: EngineConfig,
    scene: Scene,
    model: LoadedTorchModel,
    program: type[NativeLlama],
    watched: Callable[[TorchExecutor], Executor],
) -> EngineCore:
    config = replace(
        config,
        max_num_seqs=scene.running + 1,
        max_num_batched_tokens=max(config.max_num_batched_tokens, scene.most_tokens_of_a_step),
        prefix_caching=False,
        policy=config.policy or "vllm",  # every step takes all it is given: a policy that holds prompts back would not
    )
    capabilities = Capabilities(
        model.max_position_embeddings, model.vocab_size, model.bytes_per_block(config.block_size), available_memory()
    )
    resolved = resolve(config, capabilities)
    executor = model.executor(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_model_len=resolved.max_model_len,
        program=program,
    )
    return assemble(resolved, watched(executor))


class _Stage:
    """Everybody's prompt is computed, and from here on every step is like the one before."""

    def __init__(self, core: EngineCore, scene: Scene) -> None:
        self._core = core
        self._scene = scene
        self._num_prefills = 0
        for index in range(scene.running):
            self._arrive(f"decoding-{index}", scene.context, scene.most_decoded + 1)
        while core.has_work and len(core.step().outputs) < scene.running:
            pass
        for _ in range(_WARM_UP_STEPS):
            self._step()

    def run(self, stopwatch: Stopwatch) -> float:
        """Seconds for the scene's steps. The stopwatch starts anew."""
        stopwatch.seconds.clear()
        began = time.perf_counter()
        for _ in range(self._scene.steps):
            stopwatch.enter("schedule")
            result = self._step()
            stopwatch.enter("delivery")
            encode(result)
        stopwatch.enter("")
        stopwatch.seconds.pop("", None)
        return time.perf_counter() - began

    def _step(self) -> StepResult:
        expected = self._scene.running
        if self._scene.prefill:
            self._num_prefills += 1
            expected += 1
            self._arrive(f"prompt-{self._num_prefills}", self._scene.prefill, 1)
        result = self._core.step()
        if len(result.outputs) != expected:
            raise ConfigError("the scene does not fit: lower running, prefill or context, or raise kv_memory")
        return result

    def _arrive(self, name: str, num_tokens: int, max_tokens: int) -> None:
        prompt = tuple((len(name) + 7 * position) % 64 for position in range(num_tokens))
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self._core.accept(Add(Request(RequestId(name), prompt, sampling, arrival_time=0.0)))


class _TimedExecutor:
    def __init__(self, inner: Executor, stopwatch: Stopwatch) -> None:
        self._inner = inner
        self._stopwatch = stopwatch

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        self._stopwatch.enter("inputs")
        outcome = self._inner.execute(plan)
        self._stopwatch.enter("update")
        return outcome


def _timed_llama(stopwatch: Stopwatch) -> type[NativeLlama]:
    class TimedLlama(NativeLlama):
        """Between `hidden` and `logits` everything of the executor's own is inputs; after `logits`, sampling."""

        program_class = CallByCall

        def __init__(
            self, model: LlamaModel, memory: KVMemory, table: KernelTable, *, max_num_batched_tokens: int
        ) -> None:
            # The program reads functions off the table by name, and nothing else.
            timed = cast(KernelTable, _TimedKernels(table, stopwatch))
            super().__init__(model, memory, timed, max_num_batched_tokens=max_num_batched_tokens)

        def hidden(self, *arguments: Any) -> Any:  # tensors, which only torch's own places may name
            stopwatch.enter(_BETWEEN)
            result = super().hidden(*arguments)
            stopwatch.enter("inputs")
            return result

        def logits(self, *arguments: Any) -> Any:
            stopwatch.enter("head")
            result = super().logits(*arguments)
            stopwatch.enter("sampling")
            return result

    return TimedLlama


class _TimedKernels:
    """A kernel table whose calls are timed."""

    def __init__(self, table: KernelTable, stopwatch: Stopwatch) -> None:
        for name, part in _KERNELS.items():
            setattr(self, name, _timed(getattr(table, name), part, stopwatch))


def _timed(kernel: Callable[[Any], None], part: str, stopwatch: Stopwatch) -> Callable[[Any], None]:
    def call(arguments: Any) -> None:  # a ctypes reference, which has no better type
        stopwatch.enter(part)
        kernel(arguments)
        stopwatch.enter(_BETWEEN)

    return call
