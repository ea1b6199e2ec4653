"""A scheduling policy of your own is one small class; here the shortest job goes first. Needs no model.

python examples/05_custom_policy.py
"""

from dataclasses import dataclass

from evenflow.core.config import SchedulerConfig
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.policy.bound import Bound
from evenflow.core.policy.registry import PIECES, Piece
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import OrderKey, Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler
from evenflow.executors.shadow import ShadowExecutor

JOBS = {"report": (24, 9), "letter": (12, 6), "chat": (6, 4), "word": (3, 1)}  # tokens of prompt and output


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """The mean wait is the least there is. No bound: a long job waits for as long as shorter ones keep coming."""

    name: str = "shortest-first"

    def key(self, request: Request, /) -> OrderKey:
        return (len(request.prompt_token_ids) + request.sampling.max_tokens, request.arrival_time)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return False  # whoever runs may finish

    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("overtake_seconds", None, "s", "None: a long job may wait for ever."),)


OWN = Piece("Short jobs before long ones.", lambda kit: ShortestFirst())
PIECES_AND_OWN = {**PIECES, "order": {**PIECES["order"], "shortest-first": OWN}}


def timeline(order: str) -> None:
    """A row for each job, a column for each step:  . waits   # prompt   * gave a token"""
    policy = PolicySpec(order=order, max_num_batched_tokens=8)
    config = SchedulerConfig(max_num_seqs=2, max_model_len=64, vocab_size=1000)
    kv = KVCacheManager(num_blocks=32, block_size=4)
    scheduler = Scheduler(config, kv, policy, lambda event: None, pieces=PIECES_AND_OWN)
    executor = ShadowExecutor(num_blocks=32, block_size=4, vocab_size=1000)
    for start, (name, (prompt, output)) in enumerate(JOBS.items()):
        tokens = tuple(range(100 * start, 100 * start + prompt))
        scheduler.add(Request(RequestId(name), tokens, SamplingParams(max_tokens=output), float(start)), now=0.0)
    rows = dict.fromkeys(JOBS, "")
    while scheduler.has_work:
        alive = [state.request.id for state in scheduler.states()]
        plan = scheduler.schedule(now=0.0)
        fed = {chunk.request_id: "*" if chunk.samples else "#" for chunk in plan.chunks}
        for request_id in alive:
            rows[request_id] += fed.get(request_id, ".")
        scheduler.update(plan, executor.execute(plan), now=0.0)
    print(f"{order}: a job is done after {sum(map(len, rows.values())) / len(rows):.1f} steps on average")
    for name, row in rows.items():
        print(f"    {name:8} {row}")


timeline("fcfs")
timeline("shortest-first")
