"""Three clients stream from a running server at the same time, and their tokens come interleaved.

evenflow serve --model smollm2-135m &
pip install openai
python examples/03_stream_from_server.py
"""

import asyncio
import os

from openai import AsyncOpenAI

URL = os.environ.get("EVENFLOW_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("EVENFLOW_API_KEY", "none")
PROMPTS = {"sky": "Why is the sky blue?", "bread": "How is bread made?", "haiku": "Write a haiku about rain."}


async def stream(client: AsyncOpenAI, model: str, name: str, question: str) -> str:
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=32, temperature=0, stream=True
    )
    text = ""
    async for chunk in answer:
        piece = chunk.choices[0].delta.content or ""
        text += piece
        print(f"[{name}:{piece!r}]", end=" ", flush=True)
    return text


async def main() -> None:
    async with AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as client:
        model = (await client.models.list()).data[0].id
        texts = await asyncio.gather(*(stream(client, model, *named) for named in PROMPTS.items()))
    for name, text in zip(PROMPTS, texts, strict=True):
        print(f"\n\n{name}: {text}")


asyncio.run(main())
