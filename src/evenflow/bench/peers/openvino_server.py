"""A thin OpenAI-compatible server (streaming POST /v1/completions, GET /health) around OpenVINO GenAI, which has none.

Runs in the environment of OpenVINO: standard library and OpenVINO only. The engine has a process of its own, because
its step() holds the interpreter lock for the whole step, and sockets in the same process would wait for every step.

    front process: asyncio, one task per connection     ==pipe==     engine process: add requests, step, read tokens
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from typing import Any  # OpenVINO's types are not known where this file is checked

Tokens = list[int]


def run_engine(options: argparse.Namespace, pipe: "Connection[Any, Any]") -> None:
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
    pipe.send("ready")
    running: dict[int, tuple[Any, int]] = {}
    while True:
        while not running or pipe.poll(0):
            number, prompt, max_tokens = pipe.recv()
            generation = engine.GenerationConfig()
            generation.max_new_tokens = max_tokens
            generation.ignore_eos = True
            generation.do_sample = False
            generation.apply_chat_template = False
            tensor = runtime.Tensor(numpy.array([prompt], dtype=numpy.int64))
            running[number] = pipeline.add_request(number, tensor, generation), max_tokens
        pipeline.step()
        step: list[tuple[int, Tokens, bool]] = []
        for number, (handle, left) in list(running.items()):
            if handle.can_read():
                tokens = list(next(iter(handle.read().values())).generated_ids)
                left -= len(tokens)
                step.append((number, tokens, left <= 0))
                running[number] = handle, left
                if left <= 0:
                    del running[number]
        if step:
            pipe.send(step)


class Front:
    """Requests to the engine, and its tokens back to the connection that waits for them."""

    def __init__(self, pipe: "Connection[Any, Any]", tokenizer: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._pipe = pipe
        self._tokenizer = tokenizer
        self._loop = loop
        self._numbers = itertools.count()
        self._streams: dict[int, asyncio.Queue[tuple[Tokens, bool]]] = {}
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def join(self) -> None:
        """Once the engine has said None, its last word."""
        self._receiver.join()

    def _receive(self) -> None:
        while (step := self._pipe.recv()) is not None:
            self._loop.call_soon_threadsafe(self._deliver, step)

    def _deliver(self, step: list[tuple[int, Tokens, bool]]) -> None:
        for number, tokens, last in step:
            self._streams[number].put_nowait((tokens, last))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, path, body = await read_request(reader)
            if (method, path) == ("POST", "/v1/completions"):
                await self._complete(json.loads(body), writer)
            else:
                status = "200 OK" if path == "/health" else "404 Not Found"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
            await writer.drain()
        finally:
            writer.close()

    async def _complete(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        number = next(self._numbers)
        stream = self._streams[number] = asyncio.Queue()
        self._pipe.send((number, request["prompt"], request["max_tokens"]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        count, last = 0, False
        while not last:
            tokens, last = await stream.get()
            count += len(tokens)
            choice = {"index": 0, "text": self._tokenizer.decode(tokens), "finish_reason": "length" if last else None}
            writer.write(event({"choices": [choice]}))
            await writer.drain()
        del self._streams[number]
        prompt_tokens = len(request["prompt"])
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        writer.write(event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"object": "text_completion", "model": "m", **data}).encode() + b"\n\n"


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return method, path, await reader.readexactly(int(headers.get("content-length", "0")))


async def serve(options: argparse.Namespace, pipe: "Connection[Any, Any]") -> None:
    import openvino_genai as engine

    front = Front(pipe, engine.Tokenizer(options.model), asyncio.get_running_loop())
    server = await asyncio.start_server(front.connected, "127.0.0.1", options.port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    parser.add_argument("--max-num-batched-tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=run_engine, args=(options, theirs), daemon=True).start()
    if ours.recv() != "ready":
        raise SystemExit("the engine did not start")
    asyncio.run(serve(options, ours))


if __name__ == "__main__":
    main()
