"""evenflow behind the same pipe as the others (messages.py), with two things that only evenflow tells: what each step
carried, and what its matrix products alone take.

    python -m evenflow.bench.peers.evenflow_driver --model FOLDER --quantize int8 ...     as for `evenflow serve`
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from evenflow import __version__
from evenflow.bench.floor import ProductFloor
from evenflow.bench.peers.peer_driver import Work, drive
from evenflow.core.events import Event, StepRecord
from evenflow.core.request import SamplingParams
from evenflow.engine.config import EngineConfig
from evenflow.engine.llm import LLM

app = App(name="evenflow_driver", help=__doc__)


class _Driven:
    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._records: list[StepRecord] = []
        self._floor: ProductFloor | None = None
        self._llm = LLM(**{field.name: getattr(config, field.name) for field in dataclasses.fields(config)})
        self._llm.subscribe(self._take)

    def work(self, job: dict[str, Any]) -> dict[str, object]:
        if "floor" in job:
            return {"type": "floor", "seconds": self._seconds_of_products(job["floor"])}
        prompts = job["prompts"]
        sampling = [SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True) for most in job["max_tokens"]]
        self._records.clear()
        began = time.perf_counter()
        completions = self._llm.generate(prompts, sampling)
        wall_seconds = time.perf_counter() - began
        output_tokens = [len(completion.token_ids) for completion in completions]
        assert sum(output_tokens) == sum(len(record.emitted) for record in self._records), "every step was seen"
        return {
            "type": "ran",
            "wall_seconds": wall_seconds,
            "prompt_tokens": list(map(len, prompts)),
            "output_tokens": output_tokens,
            "steps": [_step(record) for record in self._records],
        }

    def _take(self, events: Sequence[Event]) -> None:
        """Runs in the turn of the event loop that wakes the first stream of the step, so none is late."""
        self._records += [event for event in events if isinstance(event, StepRecord)]

    def _seconds_of_products(self, steps: Sequence[tuple[int, int]]) -> float:
        if self._floor is None:
            self._floor = ProductFloor(self._config)
        return self._floor.seconds([(tokens, sampled) for tokens, sampled in steps])


def _step(record: StepRecord) -> tuple[float, int, int, int]:
    tokens = record.prefill_tokens + record.decode_tokens
    return record.end - record.start, tokens, len(record.emitted), record.attended_context_tokens


@app.default
def main(*, engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig()) -> None:
    def start() -> tuple[str, Work]:
        return f"evenflow {__version__}", _Driven(engine).work

    drive(start)


if __name__ == "__main__":
    app()
