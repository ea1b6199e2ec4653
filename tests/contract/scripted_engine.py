"""An engine whose model says its prompt over and over, one byte per token; also the program of its process.

What a prompt begins with may make a step raise, or never end. `config.model` may make the building fail.
"""

import signal
import sys

from evenflow.core.errors import ModelError
from evenflow.core.plan import StepOutcome, StepPlan, TokenLogprobs
from evenflow.core.request import RequestId
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.process import main

EOS = 256
VOCAB_SIZE = 257
RAISES = "<raise>"
HANGS = "<hang>"
UNLOADABLE = "no-such-model"
BROKEN = "broken-model"


class EchoExecutor:
    def __init__(self) -> None:
        self._prompts: dict[RequestId, tuple[int, ...]] = {}

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        for request_id in plan.left:
            self._prompts.pop(request_id, None)
        for entry in plan.entered:
            self._prompts[entry.request.id] = entry.request.prompt_token_ids
            self._misbehave(bytes(token for token in entry.request.prompt_token_ids if token != EOS))
        sampled = {}
        for chunk in plan.chunks:
            if chunk.samples:
                prompt = self._prompts[chunk.request_id]
                sampled[chunk.request_id] = prompt[(chunk.start + len(chunk.token_ids)) % len(prompt)]
        return StepOutcome(sampled, {name: TokenLogprobs(token, -0.5, 1, ()) for name, token in sampled.items()})

    def _misbehave(self, prompt: bytes) -> None:
        if prompt.startswith(RAISES.encode()):
            raise RuntimeError("the script says so")
        if prompt.startswith(HANGS.encode()):
            sys.stdout.write("hangs\n")
            sys.stdout.flush()
            while True:
                signal.pause()


def build(config: EngineConfig) -> tuple[EngineCore, EngineFacts]:
    if config.model == UNLOADABLE:
        raise ModelError(f"{config.model}: no such model")
    if config.model == BROKEN:
        raise ZeroDivisionError("broken on purpose")
    resolved = resolve(config, Capabilities(1 << 18, VOCAB_SIZE, bytes_per_block=1, free_memory=1 << 12))
    facts = EngineFacts(
        max_model_len=resolved.max_model_len,
        vocab_size=resolved.vocab_size,
        num_kv_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
    )
    core = assemble(resolved, EchoExecutor(), paranoid=config.paranoid)
    core.announce((("model", config.model),))
    return core, facts


if __name__ == "__main__":
    sys.exit(main(sys.argv, build))
