"""A scheduling policy as data: which piece is chosen for each question, and with which numbers.

A configuration file, the command line, the simulator and a live change all name the same thing, a `PolicySpec`; the
pieces themselves (order.py, fairness.py, ...) are built from it by registry.py. Numbers that belong to a piece which
is not chosen have no effect, so a spec can be changed one field at a time.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """A service class. Shares are of `max_num_seqs` (seats) and of the KV pool (blocks), between 0 and 1.

    What is guaranteed is kept free for the class and never taken back from it; what it uses beyond that it shares with
    the others, up to its maximum, and gives back to classes of a better (smaller) rank.
    """

    name: str
    """Small letters, digits, - and _; what a request's service_class names."""
    rank: int = 0
    """Smaller ranks come first and may displace larger ones; equal ranks share one line."""
    guaranteed_seats: float = 0.0
    """Share of the seats that are kept for this class."""
    max_seats: float = 1.0
    """Share of the seats that this class may have at most."""
    guaranteed_kv: float = 0.0
    """Share of the KV blocks that are kept for this class."""
    max_kv: float = 1.0
    """Share of the KV blocks that this class may have at most."""
    max_waiting_requests: int | None = None
    """Requests of this class that may wait; more are refused. No limit if not given."""
    max_waiting_tokens: int | None = None
    """Prompt tokens of this class that may wait; no limit if not given."""


DEFAULT_CLASSES = (ClassSpec("interactive"), ClassSpec("default"), ClassSpec("batch"))
"""Every policy has these names, so that a live change strands no request; here they are equals."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Without arguments: first come first served, decodes first, prompts in chunks, a fixed token budget."""

    order: str = "fcfs"
    """Who comes first within a class and tenant: fcfs, priority, shortest-prompt or deadline."""
    max_overtake: float = 30.0
    """Seconds: nobody is passed by a request that arrived more than this later (shortest-prompt, deadline)."""
    overtake_per_token: float = 0.01
    """Seconds by which each prompt token lets later arrivals pass, up to max_overtake (shortest-prompt)."""
    fairness: str = "none"
    """Between tenants: none, or vtc (equal service, counted in weighted tokens)."""
    input_weight: float = 1.0
    """Service that one computed prompt token counts as (vtc)."""
    output_weight: float = 2.0
    """Service that one output token counts as (vtc)."""
    tenant_weights: tuple[tuple[str, float], ...] = ()
    """Shares of tenants that are not to be equal; a tenant that is not named has weight 1 (vtc)."""
    interleave: str = "decode-first"
    """Who gets a step's tokens: decode-first, prefill-first, in-order or shared."""
    max_skipped_steps: int = 4
    """Steps in a row that may leave a decode out (prefill-first)."""
    min_prefill_share: float = 0.0
    """Share of a step's tokens that prefills get at least, if they have work (shared)."""
    max_prefill_share: float = 1.0
    """Share of a step's tokens that prefills get at most while others decode (shared)."""
    chunking: str = "chunked"
    """Whether a prompt may be split over steps: chunked, or whole (only if no step can hold it)."""
    budget: str = "fixed"
    """Tokens of a step: fixed, or itl-target (as many as keep the step within the target)."""
    max_num_batched_tokens: int | None = None
    """Most tokens of one step; as many as the engine was built for if not given."""
    itl_target: float = 0.1
    """Seconds that a step with decodes should take at most (itl-target)."""
    min_itl_prefill_share: float = 0.25
    """Share of the target's time that prefills may take even if decodes leave less (itl-target)."""
    min_prefill_tokens: int = 16
    """Prefill tokens that a step may have even if it then misses the target (itl-target)."""
    long_prompts: str = "unlimited"
    """Whether long prompts have limits of their own: unlimited or limited."""
    long_prompt_tokens: int = 2048
    """Prompts of more tokens are long (limited)."""
    max_long_prefills: int = 1
    """Long prompts that are in progress at once (limited)."""
    long_prompt_share: float = 0.5
    """Share of a step's prefill tokens that long prompts get together while others want some (limited)."""
    min_long_prompt_tokens: int = 16
    """Tokens of each step's prefill share that are kept for the first long prompt in progress (limited)."""
    reserve: str = "prompt"
    """KV blocks taken when a request is admitted: for its prompt, its expected output too, or its max output too."""
    reserve_quantile: float = 0.8
    """Share of requests whose output the learned length is to cover (expected)."""
    max_backfill: int = 0
    """Requests that may pass one that does not fit, while it is first in line."""
    preemption: str = "auto"
    """How a victim leaves memory: recompute, swap, or auto. Without host memory to swap to, all are recompute."""
    scope: str = "continuous"
    """When requests come in: continuous (at every step), or static (a batch, when the last one has ended)."""
    max_num_seqs: int | None = None
    """Most requests that run at once; as many as the engine was built for if not given."""
    classes: tuple[ClassSpec, ...] = DEFAULT_CLASSES
    """Service classes; one is named default."""
    max_waiting_requests: int | None = None
    """Requests that may wait, all classes together; beyond that the worst class is shed first."""
    max_waiting_tokens: int | None = None
    """Prompt tokens that may wait, all classes together."""
    refuse_late: bool = False
    """Refuse at once a request that, by the measured speed of the queue, cannot meet its deadline."""
