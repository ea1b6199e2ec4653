"""The front with a tokenizer of the `tokenizers` library, which must let go of the interpreter lock while it works."""

import asyncio
from typing import TypeVar

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from e2e.server.scripted import MODEL, Client, ScriptedCall, ScriptedEngine, logprobs_of, run
from evenflow.core.request import FinishReason
from evenflow.engine.api import Delta
from evenflow.models.tokenizer import Tokenizer
from evenflow.server.app import create_app

LONG_TEXT = "hello world " * 100_000

Kind = TypeVar("Kind", bound=Tokenizer)


def byte_level(kind: type[Kind]) -> Kind:
    """A token a byte, spelt as byte-level vocabularies spell them."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["hello world"], trainer)
    return kind(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)


class Announcing(Tokenizer):
    """Says when it begins with a long text."""

    begun: asyncio.Event
    loop: asyncio.AbstractEventLoop

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if text == LONG_TEXT:
            self.loop.call_soon_threadsafe(self.begun.set)
        return super().encode(text, add_special_tokens=add_special_tokens)


def test_the_event_loop_goes_on_while_a_giant_prompt_is_tokenised() -> None:
    async def scenario() -> None:
        tokenizer = byte_level(Announcing)
        tokenizer.begun = asyncio.Event()
        tokenizer.loop = asyncio.get_running_loop()
        client = Client(create_app(ScriptedEngine(), tokenizer, served_model_name=MODEL))
        exchange = client.send("/tokenize", {"prompt": LONG_TEXT})
        await tokenizer.begun.wait()
        assert (await client.get("/health")).status == 200
        turns = 0
        while not exchange.answered:
            turns += 1
            await asyncio.sleep(0)
        # With the interpreter lock held, the loop would turn a few thousand times before the tokenizer gets the lock,
        # and then not again until it is done; without, it turns over a hundred thousand times.
        assert turns >= 20_000
        await exchange.finish()
        assert exchange.json()["count"] == len(LONG_TEXT)

    run(scenario())


def test_logprobs_show_text_and_token_strings_the_spelling_of_the_vocabulary() -> None:
    async def scenario() -> None:
        tokenizer = byte_level(Tokenizer)
        (space,) = tokenizer.encode(" ")

        def script(call: ScriptedCall) -> None:
            call.give(Delta(" ", (space,), FinishReason.STOP, logprobs=logprobs_of([space], 0)))

        client = Client(create_app(ScriptedEngine(script), tokenizer, served_model_name=MODEL))
        answer = await client.post("/v1/completions", {"prompt": "a", "logprobs": 0})
        assert answer.json()["choices"][0]["logprobs"]["tokens"] == [" "]
        answer = await client.post("/tokenize", {"prompt": " ", "return_token_strs": True})
        assert answer.json()["token_strs"] == ["Ġ"]

    run(scenario())
