"""Watch the scheduler decide: what each step runs, and why whoever was left out was left out. Needs no model.

python examples/04_watch_a_step.py
"""

from itertools import count

from evenflow.core.config import SchedulerConfig
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import StepPlan
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler
from evenflow.executors.shadow import ShadowExecutor

# Small enough to run short of everything: tokens per step, seats, and KV blocks (of 4 tokens).
BLOCKS, BLOCK_SIZE, VOCAB = 11, 4, 1000
scheduler = Scheduler(
    SchedulerConfig(max_num_seqs=3, max_model_len=48, vocab_size=VOCAB),
    KVCacheManager(num_blocks=BLOCKS, block_size=BLOCK_SIZE),
    PolicySpec(max_num_batched_tokens=12),
    lambda event: None,
)
executor = ShadowExecutor(num_blocks=BLOCKS, block_size=BLOCK_SIZE, vocab_size=VOCAB)


def show(plan: StepPlan) -> None:
    used = BLOCKS - scheduler.kv.num_free_blocks
    print(f"step {plan.step}: {plan.num_tokens} of {plan.token_budget} tokens, {used} of {BLOCKS} blocks")
    for entry in plan.entered:
        print(f"    {entry.request.id} enters, {entry.num_cached_tokens} of {len(entry.token_ids)} tokens are cached")
    for request_id in plan.preempted:
        print(f"    {request_id} is preempted: no block was free for those before it")
    for chunk in plan.chunks:
        kind = "last chunk or decode: gives a token" if chunk.samples else "chunk of a prompt"
        print(f"    {chunk.request_id} runs {chunk.start}..{chunk.start + len(chunk.token_ids) - 1} ({kind})")
    for left_out in plan.left_out:
        print(f"    {left_out.request_id} has a seat but no token: {left_out.reason.value}")
    for door in plan.doors:
        print(f"    {door.head} waits, and everyone behind it: {door.reason.value}")


def request(name: str, prompt: range, max_tokens: int) -> Request:
    return Request(RequestId(name), tuple(prompt), SamplingParams(max_tokens=max_tokens), arrival_time=0.0)


scheduler.add(request("short", range(3), 8), now=0.0)
scheduler.add(request("long", range(100, 126), 4), now=0.0)
scheduler.add(request("late", range(200, 206), 7), now=0.0)
scheduler.add(request("twin", range(100, 126), 2), now=0.0)  # the prompt of "long": cached by the time it enters
for now in count(1.0):
    if not scheduler.has_work:
        break
    plan = scheduler.schedule(now=now)
    show(plan)
    scheduler.update(plan, executor.execute(plan), now=now)
