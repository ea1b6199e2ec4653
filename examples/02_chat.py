"""A conversation of several turns; each turn finds the turns before it in the prefix cache.

python examples/02_chat.py
"""

from evenflow import LLM, SamplingParams

QUESTIONS = ["What is the capital of France?", "And of Italy?", "Which of the two is larger?"]
SAMPLING = SamplingParams(max_tokens=40, temperature=0)

with LLM(model="smollm2-135m", max_model_len=1024) as llm:
    messages = [{"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        [completion] = llm.chat(messages, SAMPLING)
        messages.append({"role": "assistant", "content": completion.text})
        print(f"> {question}\n{completion.text}")
        # Whole blocks of tokens that were computed before are not computed again.
        print(f"  ({completion.num_cached_tokens} of {len(completion.prompt_token_ids)} prompt tokens were cached)\n")
