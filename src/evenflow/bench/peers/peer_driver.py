"""Other engines behind a pipe (messages.py says what goes through it). Runs in the environment of the engine it drives.

    python peer_driver.py vllm|openvino|transformers --model FOLDER ...

So it imports nothing but the standard library at the top, and each engine where that engine is built. What engines
print goes to stderr; stdout carries answers only.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any  # the engines' own types are not known where this file is checked

Prompts = list[list[int]]
Run = Callable[[Prompts, list[int]], list[int]]
"""Greedy, end-of-sequence ignored; the number of output tokens of each request."""
Work = Callable[[dict[str, Any]], dict[str, object]]
"""What a job file says to what is answered."""


def drive(start: Callable[[], tuple[str, Work]]) -> None:
    """Start an engine, say its version, and work until stdin ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def answer(message: dict[str, object]) -> None:
            print(json.dumps(message), file=answers, flush=True)

        version, work = start()
        answer({"type": "ready", "version": version})
        for line in sys.stdin:
            with open(json.loads(line)["job"]) as file:
                job = json.load(file)
            try:
                answer(work(job))
            except Exception as error:
                answer({"type": "failed", "reason": f"{type(error).__name__}: {error}"[:500]})


def timed(run: Run) -> Work:
    def work(job: dict[str, Any]) -> dict[str, object]:
        prompts: Prompts = job["prompts"]
        began = time.perf_counter()
        output_tokens = run(prompts, job["max_tokens"])
        wall_seconds = time.perf_counter() - began
        counts = {"prompt_tokens": list(map(len, prompts)), "output_tokens": output_tokens}
        return {"type": "ran", "wall_seconds": wall_seconds, **counts}

    return work


def vllm(options: argparse.Namespace) -> tuple[str, Run]:
    import vllm as engine
    from vllm.inputs import TokensPrompt

    llm = engine.LLM(
        model=options.model,
        dtype="bfloat16",
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def run(prompts: Prompts, max_tokens: list[int]) -> list[int]:
        sampling = [engine.SamplingParams(temperature=0.0, max_tokens=each, ignore_eos=True) for each in max_tokens]
        outputs = llm.generate([TokensPrompt(prompt_token_ids=ids) for ids in prompts], sampling, use_tqdm=False)
        return [len(output.outputs[0].token_ids) for output in outputs]

    return f"vLLM {engine.__version__}", run


def openvino(options: argparse.Namespace) -> tuple[str, Run]:
    import numpy
    import openvino as runtime
    import openvino_genai as engine

    scheduler = engine.SchedulerConfig()
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.max_num_seqs = options.max_num_seqs
    scheduler.cache_size = 2
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    properties: dict[str, object] = {"INFERENCE_NUM_THREADS": options.threads}
    if options.precision is not None:
        properties["INFERENCE_PRECISION_HINT"] = options.precision
    pipeline = engine.ContinuousBatchingPipeline(options.model, scheduler, "CPU", properties)
    num_requests = 0

    def config(max_tokens: int) -> Any:
        generation = engine.GenerationConfig()
        generation.max_new_tokens = max_tokens
        generation.ignore_eos = True
        generation.do_sample = False
        generation.apply_chat_template = False
        return generation

    def run(prompts: Prompts, max_tokens: list[int]) -> list[int]:
        nonlocal num_requests
        handles = []
        for ids, most in zip(prompts, max_tokens):  # noqa: B905 # as long as each other, by the job
            tensor = runtime.Tensor(numpy.array([ids], dtype=numpy.int64))
            handles.append(pipeline.add_request(num_requests, tensor, config(most)))
            num_requests += 1
        while pipeline.has_non_finished_requests():
            pipeline.step()
        return [len(handle.read_all()[0].generated_ids) for handle in handles]

    return f"OpenVINO GenAI {engine.__version__}", run


def transformers(options: argparse.Namespace) -> tuple[str, Run]:
    import transformers as library
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    engine: Any = library
    model = engine.AutoModelForCausalLM.from_pretrained(
        options.model, dtype="bfloat16", attn_implementation="sdpa"
    ).eval()
    generation = engine.GenerationConfig(do_sample=False, max_new_tokens=256, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(
        page_size=128,
        num_blocks=256,
        max_batch_tokens=options.max_num_batched_tokens,
        max_requests_per_batch=options.max_num_seqs,
        allow_block_sharing=False,
        use_cuda_graph=False,
        use_async_batching=False,
    )
    manager = model.init_continuous_batching(generation_config=generation, continuous_batching_config=batching)
    manager.start()

    def run(prompts: Prompts, max_tokens: list[int]) -> list[int]:
        names = [
            manager.add_request(ids, max_new_tokens=most, eos_token_id=-1)
            for ids, most in zip(prompts, max_tokens)  # noqa: B905 # as long as each other, by the job
        ]
        counts: dict[str, int] = {}
        while len(counts) < len(names):
            result = manager.get_result(timeout=1)
            if result is None and not manager.is_running():
                raise RuntimeError("the manager stopped")
            if result is not None and result.error:
                raise RuntimeError(result.error)
            if result is not None and result.is_finished():
                counts[result.request_id] = len(result.generated_tokens)
        return [counts[name] for name in names]

    return f"transformers {engine.__version__}", run


ENGINES: dict[str, Callable[[argparse.Namespace], tuple[str, Run]]] = {
    "vllm": vllm,
    "openvino": openvino,
    "transformers": transformers,
}


def options_of(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", required=True)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    parser.add_argument("--max-num-batched-tokens", type=int, required=True)
    parser.add_argument("--max-model-len", type=int, default=4608)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision")
    return parser.parse_args(list(arguments))


def main() -> None:
    options = options_of(sys.argv[1:])

    def start() -> tuple[str, Work]:
        version, run = ENGINES[options.engine](options)
        return version, timed(run)

    drive(start)


if __name__ == "__main__":
    main()
