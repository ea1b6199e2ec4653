"""The engine for callers that wait: what `LLM` is, here on a scripted model that says its prompt over and over."""

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from contract.scripted_engine import EOS, RAISES, UNLOADABLE, VOCAB_SIZE, EchoExecutor, build
from evenflow.core.errors import ConfigError, ContextOverflow, EngineUnavailable, InvalidRequest, ModelError
from evenflow.core.plan import StepOutcome, StepPlan
from evenflow.core.request import FinishReason, SamplingParams
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, Dtype, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.llm import LLM
from evenflow.engine.loop_thread import LoopThread
from evenflow.engine.offline import OfflineEngine
from evenflow.engine.stream import merge
from evenflow.engine.thread import ThreadLink

ONE_SEAT = EngineConfig(max_num_seqs=1, block_size=256, paranoid=True)
MANY_SEATS = replace(ONE_SEAT, max_num_seqs=64)
ENDLESS = SamplingParams(max_tokens=100_000)
TIMEOUT_SECONDS = 60.0


class Shouting:
    """A chat template."""

    def render(self, messages: Sequence[Mapping[str, object]], /, *, add_generation_prompt: bool) -> str:
        return "".join(str(message["content"]).upper() for message in messages) + ">" * add_generation_prompt


class ByteTokenizer:
    eos_token_ids = (EOS,)
    chat_template = Shouting()

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode()) if add_special_tokens else [*text.encode(), EOS]

    def token_bytes(self, token_id: int, /) -> bytes:
        return bytes([token_id])

    def is_special(self, token_id: int, /) -> bool:
        return token_id == EOS

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids).decode(errors="replace")


@pytest.fixture
def engine() -> Iterator[OfflineEngine]:
    with OfflineEngine(ThreadLink(MANY_SEATS, build=build), ByteTokenizer()) as engine:
        yield engine


def first(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count)


# ---- asking ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_text_or_token_ids_or_several_of_them(engine: OfflineEngine) -> None:
    assert [c.text for c in engine.generate("abc", first(4))] == ["abca"]
    assert [c.text for c in engine.generate([97, 98], first(3))] == ["aba"]
    both: list[str | list[int]] = ["abc", [97, 98]]
    assert [c.text for c in engine.generate(both, first(3))] == ["abc", "aba"]
    assert engine.generate([]) == []


def test_a_completion_says_all_there_is_to_say(engine: OfflineEngine) -> None:
    [c] = engine.generate("ab", first(3))
    assert (c.prompt, c.prompt_token_ids, c.token_ids) == ("ab", (97, 98), (97, 98, 97))
    assert (c.finish_reason, c.stop_reason, c.num_cached_tokens) == (FinishReason.LENGTH, None, 0)
    assert [entry.token_id for entry in c.logprobs] == [97, 98, 97]


def test_completions_come_in_the_order_of_their_prompts_each_with_its_own_sampling(engine: OfflineEngine) -> None:
    counts = [(7 * n) % 50 + 1 for n in range(100)]
    completions = engine.generate([f"{n}," for n in range(100)], [first(count) for count in counts])
    assert [c.text for c in completions] == [(f"{n}," * 50)[:count] for n, count in enumerate(counts)]


def test_generation_stops_at_a_stop_string(engine: OfflineEngine) -> None:
    assert [c.text for c in engine.generate("hello", ENDLESS, stop="oh")] == ["hell"]
    assert [c.stop_reason for c in engine.generate("hello", ENDLESS, stop=["zz", "oh"])] == ["oh"]
    sampling = SamplingParams(max_tokens=100, min_tokens=8)
    assert [c.text for c in engine.generate("hello", sampling, stop="oh")] == ["hellohell"]


def test_a_conversation_is_rendered_by_the_chat_template(engine: OfflineEngine) -> None:
    [c] = engine.chat([{"role": "user", "content": "hi"}])
    assert (c.prompt, c.text, c.finish_reason) == ("HI>", "HI>", FinishReason.STOP)
    several = engine.chat([[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]])
    assert [c.text for c in several] == ["A>", "B>"]


def test_a_model_without_a_chat_template_says_what_to_do() -> None:
    class Plain(ByteTokenizer):
        chat_template = None  # type: ignore[assignment] # narrower than its parent, in this test only

    with (
        OfflineEngine(ThreadLink(MANY_SEATS, build=build), Plain()) as engine,
        pytest.raises(InvalidRequest, match=r"use generate\(\)"),
    ):
        engine.chat([{"role": "user", "content": "hi"}])


def test_a_stream_gives_text_as_it_comes(engine: OfflineEngine) -> None:
    deltas = list(engine.stream("abc", first(500)))
    assert merge(deltas).text == ("abc" * 200)[:500]
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_refused_prompt_raises_and_the_others_are_aborted() -> None:
    with OfflineEngine(ThreadLink(ONE_SEAT, build=build), ByteTokenizer()) as engine:
        with pytest.raises(ContextOverflow, match="max_tokens"):
            engine.generate(["a", "b", "c"], [ENDLESS, first(1 << 20), ENDLESS])
        assert [c.text for c in engine.generate("abc", first(3))] == ["abc"], "the only seat is free"


def test_as_many_sampling_parameters_as_prompts_are_needed(engine: OfflineEngine) -> None:
    with pytest.raises(InvalidRequest, match="2 prompts but 1 sampling"):
        engine.generate(["a", "b"], [first(1)])


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (SamplingParams(stop_token_ids=(VOCAB_SIZE,)), "stop_token_ids"),
        (SamplingParams(logit_bias=((VOCAB_SIZE, 1.0),)), "logit_bias"),
    ],
)
def test_token_ids_out_of_the_vocabulary_are_refused_by_field(
    engine: OfflineEngine, sampling: SamplingParams, param: str
) -> None:
    for prompt, params, named in (("abc", sampling, param), ([VOCAB_SIZE], first(3), "prompt")):
        with pytest.raises(InvalidRequest) as caught:
            engine.generate(prompt, params)
        assert caught.value.param == named
    assert [c.text for c in engine.generate("abc", first(3))] == ["abc"]


def test_a_wrong_argument_is_refused_when_it_is_given_also_to_a_stream(engine: OfflineEngine) -> None:
    for ask in (engine.generate, engine.stream):
        with pytest.raises(InvalidRequest, match=r"^prompts? must be text"):
            ask(None)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"^stop must be text"):
            ask("abc", stop=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match=r"^sampling must be SamplingParams"):
            ask("abc", "greedy")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"^messages must be a list of messages"):
        engine.chat("hi")  # type: ignore[arg-type]


def test_an_exception_in_the_engine_surfaces_in_the_caller(
    engine: OfflineEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EngineUnavailable, match="RuntimeError: the script says so"):
        engine.generate(["fine", RAISES], ENDLESS)
    with pytest.raises(EngineUnavailable, match="the script says so"):
        engine.generate("fine")
    assert "Traceback" in capfd.readouterr().err


def test_a_model_that_does_not_load_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ModelError, match="no such model"):
        OfflineEngine(ThreadLink(EngineConfig(model=UNLOADABLE), build=build), ByteTokenizer())
    assert threading.active_count() == before


class Steps:
    """Does something in every n-th step."""

    def __init__(self, every: int, action: Callable[[], object]) -> None:
        self._every, self._action = every, action
        self._executor = EchoExecutor()

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        if plan.step % self._every == 0:
            self._action()
        return self._executor.execute(plan)

    def build(self, config: EngineConfig) -> tuple[EngineCore, EngineFacts]:
        _, facts = build(config)
        resolved = resolve(config, Capabilities(1 << 18, VOCAB_SIZE, bytes_per_block=1, free_memory=1 << 12))
        return assemble(resolved, self, paranoid=True), facts


def interrupt_main_thread() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_frees_what_the_caller_leaves_behind() -> None:
    steps = Steps(20, interrupt_main_thread)
    with OfflineEngine(ThreadLink(ONE_SEAT, build=steps.build), ByteTokenizer()) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate("abc", ENDLESS)
        assert [c.text for c in engine.generate("abc", first(3))] == ["abc"], "the only seat is free"


def test_leaving_a_stream_early_frees_its_request() -> None:
    with OfflineEngine(ThreadLink(ONE_SEAT, build=build), ByteTokenizer()) as engine:
        for _ in engine.stream("abc", ENDLESS):
            break
        assert [c.text for c in engine.generate("abc", first(3))] == ["abc"], "the only seat is free"


# ---- threads and the end ---------------------------------------------------------------------------------------------


def test_several_threads_share_one_engine(engine: OfflineEngine) -> None:
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        [completion] = engine.generate(f"<{number}>", first(300))
        texts[number] = completion.text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"<{number}>" * 100 for number in range(8)}


def test_closing_ends_whoever_still_waits() -> None:
    started = threading.Event()
    errors: list[Exception] = []
    steps = Steps(10, started.set)
    engine = OfflineEngine(ThreadLink(MANY_SEATS, build=steps.build), ByteTokenizer())

    def ask() -> None:
        try:
            engine.generate("abc", ENDLESS)
        except EngineUnavailable as error:
            errors.append(error)

    waiter = threading.Thread(target=ask)
    waiter.start()
    assert started.wait(TIMEOUT_SECONDS)
    engine.close()
    waiter.join()
    assert len(errors) == 1
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.generate("abc")


def test_a_stream_whose_engine_was_closed_says_so() -> None:
    engine = OfflineEngine(ThreadLink(MANY_SEATS, build=build), ByteTokenizer())
    begun, fresh = engine.stream("abc", ENDLESS), engine.stream("abc", ENDLESS)
    next(begun)
    engine.close()
    for deltas in (begun, fresh):
        with pytest.raises(EngineUnavailable, match=r"closed|stopped"):
            merge(list(deltas))
        assert list(deltas) == []
    with pytest.raises(EngineUnavailable, match="closed"):
        engine.stream("abc", ENDLESS)


def test_who_waits_for_a_loop_that_ends_is_told() -> None:
    thread = LoopThread()
    waiting = threading.Event()
    errors: list[Exception] = []

    async def for_ever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def at_once() -> None:
        pass

    def wait() -> None:
        try:
            thread.call(for_ever())
        except EngineUnavailable as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert waiting.wait(TIMEOUT_SECONDS)
    thread.end_after(at_once())
    waiter.join(TIMEOUT_SECONDS)
    thread.join()
    assert [str(error) for error in errors] == ["the engine was closed"]
    with pytest.raises(EngineUnavailable, match="closed"):
        thread.call(at_once())


def test_an_engine_that_is_forgotten_ends() -> None:
    before = set(threading.enumerate())
    engine = OfflineEngine(ThreadLink(MANY_SEATS, build=build), ByteTokenizer())
    engine.generate("abc", first(3))
    threads = set(threading.enumerate()) - before
    assert {thread.name for thread in threads} >= {"evenflow-engine", "evenflow-streams"}
    del engine
    gc.collect()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


# ---- LLM -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"max_num_seq": 3}, "max_num_seq is not a setting"),
        ({"max_num_seqs": "many"}, "max_num_seqs"),
        ({"dtype": "int3"}, "dtype"),
        ({"dtype": Dtype.FP32, "block_size": 3}, "block_size"),
    ],
)
def test_settings_that_cannot_be_served_are_named(
    settings: dict[str, Any],  # of Any: wrong ones too
    complaint: str,
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        LLM("smollm2-135m", **settings)


def test_a_model_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model must be a name or a path, not NoneType$"):
        LLM(None)  # type: ignore[arg-type]


def test_a_model_that_does_not_exist_is_named() -> None:
    with pytest.raises(ModelError, match="no/such/model"):
        LLM("no/such/model", dtype="fp32")


@pytest.mark.model
def test_a_real_model_completes_a_prompt() -> None:
    with LLM("smollm2-135m", threads=1, max_model_len=64, max_num_seqs=2) as llm:
        [completion] = llm.generate("The capital of France is", SamplingParams(max_tokens=2, temperature=0.0))
    assert completion.text.startswith(" Paris")
