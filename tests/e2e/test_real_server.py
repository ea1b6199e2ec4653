"""What a real model says through `evenflow serve` and the `openai` package, streaming and not."""

import httpx
import openai
import pytest

from e2e.real_server import FRANCE, MODEL, RealServer

pytestmark = pytest.mark.model


def test_a_completion_whole_and_streamed(real_server: RealServer) -> None:
    whole = real_server.client.completions.create(model=MODEL, prompt=FRANCE, max_tokens=12, temperature=0)
    assert whole.choices[0].text.startswith(" Paris")
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 12)
    with real_server.client.completions.create(
        model=MODEL,
        prompt=FRANCE,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        *chunks, last = stream
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert len(chunks) >= 10
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 17


def test_a_chat_whole_and_streamed(real_server: RealServer) -> None:
    whole = real_server.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_completion_tokens=24,
        temperature=0,
    )
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    with real_server.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_completion_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        *chunks, last = stream
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.total_tokens == whole.usage.total_tokens


def test_several_choices_are_different_texts_and_the_same_ones_again(real_server: RealServer) -> None:
    whole = real_server.client.completions.create(model=MODEL, prompt="Once upon a time", n=3, seed=7, max_tokens=8)
    texts = [choice.text for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    streamed = ["", "", ""]
    with real_server.client.completions.create(
        model=MODEL, prompt="Once upon a time", n=3, seed=7, max_tokens=8, stream=True
    ) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
    assert streamed == texts


def test_logprobs_of_a_completion_are_of_its_tokens(real_server: RealServer) -> None:
    answer = real_server.client.completions.create(model=MODEL, prompt=FRANCE, max_tokens=4, temperature=0, logprobs=3)
    (choice,) = answer.choices
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert "".join(logprobs.tokens) == choice.text
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert len(top) == 3
        assert top[token] == logprob == max(top.values()) <= 0.0  # greedy takes the likeliest


def test_logprobs_of_a_streamed_chat(real_server: RealServer) -> None:
    with real_server.client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say yes."}],
        max_tokens=4,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        stream=True,
    ) as stream:
        choices = [chunk.choices[0] for chunk in stream]
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or ()]
    assert [len(entry.top_logprobs) for entry in entries] == [2] * len(entries)
    assert [entry.top_logprobs[0].token for entry in entries] == [entry.token for entry in entries]
    text = "".join(choice.delta.content or "" for choice in choices)
    assert "".join(entry.token for entry in entries).startswith(text)
    assert text


def test_echo_gives_the_prompt_back_with_its_logprobs(real_server: RealServer) -> None:
    answer = real_server.client.completions.create(
        model=MODEL, prompt=FRANCE, max_tokens=2, temperature=0, echo=True, logprobs=1
    )
    (choice,) = answer.choices
    assert choice.text.startswith(f"{FRANCE} Paris")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert len(choice.logprobs.tokens) == 5 + 2
    assert choice.logprobs.token_logprobs[0] is None  # nothing comes before it
    assert all(logprob <= 0.0 for logprob in choice.logprobs.token_logprobs[1:])
    assert real_server.complete(FRANCE, max_tokens=2, echo=True) == choice.text


def test_a_stop_string_ends_the_text_before_it_wherever_tokens_begin(real_server: RealServer) -> None:
    whole = real_server.complete("The days of the week are", max_tokens=24)
    for start in (3, 17):
        stop = whole[start : start + 5]
        expected = whole[: whole.index(stop)]
        for stream in (False, True):
            answer = real_server.client.completions.create(
                model=MODEL, prompt="The days of the week are", max_tokens=24, temperature=0, stop=[stop], stream=stream
            )
            if isinstance(answer, openai.Stream):
                with answer:
                    choices = [chunk.choices[0] for chunk in answer]
            else:
                choices = answer.choices
            assert "".join(choice.text for choice in choices) == expected
            assert choices[-1].finish_reason == "stop"


def test_a_bias_decides(real_server: RealServer) -> None:
    (london,) = real_server.token_ids(" London")
    answer = real_server.client.completions.create(
        model=MODEL, prompt=FRANCE, max_tokens=3, temperature=0, logit_bias={str(london): 100}
    )
    assert answer.choices[0].text == " London London London"


def test_the_end_comes_after_min_tokens_and_not_before(real_server: RealServer) -> None:
    (end,) = real_server.token_ids("<|im_end|>")
    ended = real_server.client.completions.create(
        model=MODEL, prompt=FRANCE, max_tokens=20, temperature=0, logit_bias={str(end): 100}
    )
    assert ended.usage is not None
    assert (ended.usage.completion_tokens, ended.choices[0].finish_reason) == (1, "stop")
    later = real_server.client.completions.create(
        model=MODEL,
        prompt=FRANCE,
        max_tokens=20,
        temperature=0,
        logit_bias={str(end): 100},
        extra_body={"min_tokens": 6},
    )
    assert later.usage is not None
    assert later.usage.completion_tokens in (6, 7)
    assert later.choices[0].finish_reason == "stop"
    assert later.choices[0].text.startswith(" Paris")


def test_text_becomes_tokens_and_comes_back(real_server: RealServer) -> None:
    text = "Naïve café, 北京, 🙂\n\n  def f(x):\treturn x"
    tokens = real_server.token_ids(text)
    assert len(tokens) > 10
    assert httpx.post(f"{real_server.url}/detokenize", json={"tokens": tokens}).json() == {"prompt": text}


def test_bad_input_is_said_and_the_next_request_works(real_server: RealServer) -> None:
    before = real_server.complete(FRANCE, max_tokens=3)
    for fields, param in (
        ({"prompt": ""}, "prompt"),
        ({"prompt": FRANCE, "max_tokens": 0}, "max_tokens"),
        ({"prompt": [49152]}, "prompt"),
        ({"prompt": FRANCE, "max_tokens": 5000}, "max_tokens"),
        ({"prompt": FRANCE, "temperature": -1}, "temperature"),
        ({"prompt": FRANCE, "tempature": 1}, "tempature"),
        ({"prompt": FRANCE, "stop": [""]}, "stop"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            real_server.client.post("/completions", body={"model": MODEL, **fields}, cast_to=object)
        assert refused.value.param == param
    assert real_server.complete(FRANCE, max_tokens=3) == before


def test_the_metrics_count_what_was_served(real_server: RealServer) -> None:
    requests, tokens = real_server.gauge("vllm:request_success"), real_server.gauge("vllm:generation_tokens")
    real_server.complete(FRANCE, max_tokens=5)
    real_server.until(lambda: real_server.gauge("vllm:request_success") == requests + 1)
    assert real_server.gauge("vllm:generation_tokens") == tokens + 5
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert real_server.gauge(name) == 0
