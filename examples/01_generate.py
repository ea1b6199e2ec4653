"""Complete prompts in one batch, and one prompt as it comes.

python examples/01_generate.py
"""

from evenflow import LLM, SamplingParams

PROMPTS = ["The capital of France is", "Once upon a time", "The opposite of hot is"]

with LLM(model="smollm2-135m", max_model_len=512) as llm:
    # All prompts run at once: each iteration of the model gives every one of them a token.
    for completion in llm.generate(PROMPTS, SamplingParams(max_tokens=12, temperature=0)):
        print(f"{completion.prompt!r} -> {completion.text!r} ({completion.finish_reason.value})")

    # Every prompt may have its own way of choosing tokens; a seed makes its text the same every time.
    each = [SamplingParams(max_tokens=12, temperature=0.8, top_p=0.95, seed=seed) for seed in range(len(PROMPTS))]
    for completion in llm.generate(PROMPTS, each):
        print(f"{completion.prompt!r} -> {completion.text!r}")

    # How sure was it? The log-probabilities of each token and of the two likeliest in its place.
    [completion] = llm.generate(PROMPTS[0], SamplingParams(max_tokens=1, temperature=0, logprobs=2))
    for token_id, logprob in completion.logprobs[0].top:
        print(f"{llm.tokenizer.decode([token_id])!r}: {logprob:.2f}")

    # A stream ends before the stop string; leaving the loop early would free the request at once.
    for delta in llm.stream("Counting: one, two, three,", SamplingParams(max_tokens=24, temperature=0), stop="."):
        print(delta.text, end="", flush=True)
    print()
