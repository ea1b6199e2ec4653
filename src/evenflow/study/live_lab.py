"""The study on the real engine: a server on this machine for every run, and the load generator in front of it.

Texts are an eighth as long and loads a twelfth as large as on a simulated device, so that a small machine with a small
model is done in minutes. What an experiment says is said of this engine then.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evenflow.core.events import Finished
from evenflow.engine.config import EngineConfig
from evenflow.observe.log import read_log
from evenflow.replay.preflight import LocalTokenizer
from evenflow.replay.run import Replay
from evenflow.replay.watch import Watcher, nobody_watches
from evenflow.study.lab import Lab, Played
from evenflow.tune.live import LiveEngine
from evenflow.tune.settings import Settings
from evenflow.workload.trace import Trace, TraceRequest

_LENGTHS = 0.125
_LOADS = 1 / 12
_SEED = 1


def _to_nobody(words: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LiveLab:
    """`engine` names a model on disk, and its KV memory. `size` is as for a simulated lab.

    `tell` is told of every run as it begins, `warn` of what makes one another load than was asked
    for: requests that were sent late, say.
    """

    engine: EngineConfig
    tokenizer: LocalTokenizer
    size: float = 1.0
    watch: Watcher = nobody_watches
    tell: Callable[[str], None] = _to_nobody
    warn: Callable[[str], None] = _to_nobody
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512

    @property
    def name(self) -> str:
        return f"live, {Path(self.engine.model).name} on this machine"

    def count(self, requests: int) -> int:
        return max(40, round(requests * _LOADS * self.size))

    def tokens(self, tokens: int) -> int:
        return max(1, round(tokens * _LENGTHS))

    def play(self, load: Sequence[TraceRequest], settings: Settings, *, replicas: int = 1) -> Played:
        assert replicas == 1, "there is one machine"
        requests = tuple(sorted(load, key=lambda each: each.arrival_seconds))
        trace = Trace("the study", "made", requests, len(requests))
        what = Replay("study", "http://127.0.0.1", trace, tokenizer=self.tokenizer, warm_up_seconds=0.0)
        self.tell(
            f"{len(requests)} requests to a server with {settings.max_num_seqs} seats, "
            f"{settings.max_num_batched_tokens} tokens a step, {settings.policy}"
        )
        with tempfile.TemporaryDirectory(prefix="evenflow-study-") as folder:
            log = Path(folder) / "events.jsonl"
            engine = LiveEngine(replace(self.engine, max_model_len=self._longest(load)), what)
            run = engine.run(settings, log, name="study", seed=_SEED, watch=self.watch)
            with read_log(log) as events:
                preemptions = sum(event.num_preemptions for event in events if isinstance(event, Finished))
        if run.faults:
            self.warn("; ".join(run.faults))
        return Played(run.result, preemptions)

    def _longest(self, load: Sequence[TraceRequest]) -> int:
        """Room for the longest request, and for the client's own questions before the run."""
        return max(256, *(each.num_prompt_tokens + each.num_output_tokens for each in load))

    def with_host_memory(self, seconds_per_block: float) -> Lab | None:
        return None
