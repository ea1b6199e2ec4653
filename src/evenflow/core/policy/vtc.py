"""Equal service for tenants: the virtual token counter ("Fairness in Serving Large Language Models", OSDI 2024).

Each tenant has a counter of the service it got, in weighted tokens (an output token costs more to make than a prompt
token to read), and the tenant of the smallest counter comes in next. A tenant that was away is lifted to the smallest
counter of those who wait: absence earns no credit. Service is charged when it is given: the uncached prompt at first
admission, each output token when it is made. What a preemption makes the engine compute again is charged to nobody.

Counters only grow. So each lane's heap of tenants may hold old values: one that surfaces is put back with its new
value, and what is then on top is the smallest. A tenant's requests of one rank share a counter, whatever lane they wait
in.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from evenflow.core.plan import Chunk
from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.policy.fairness import SERVICE_GAP, Fairness, Lane
from evenflow.core.queue import FlowQueue
from evenflow.core.request import OrderKey, Request, RequestId, RequestState


class Account:
    """A tenant within a rank. `counter` is its service divided by its weight; `num_open` requests have had some."""

    __slots__ = ("counter", "num_open", "num_waiting", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.counter = 0.0
        self.num_waiting = 0
        self.num_open = 0


class Accounts:
    """The counters of one rank, and the lanes in which its tenants wait."""

    __slots__ = ("_accounts", "_last_to_leave", "_most_kept", "_weights", "lanes")

    def __init__(self, weights: dict[str, float]) -> None:
        self._weights = weights
        self._accounts: dict[str, Account] = {}
        self._last_to_leave: Account | None = None
        self._most_kept = 1024
        self.lanes: list[FairLane] = []

    def of(self, tenant: str) -> Account:
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = Account(self._weights.get(tenant, 1.0))
            if len(self._accounts) > self._most_kept:
                self._forget_the_even(account)
        return account

    def join(self, tenant: str) -> Account:
        account = self.of(tenant)
        if not account.num_waiting:
            account.counter = max(account.counter, self._floor())
        account.num_waiting += 1
        return account

    def leave(self, tenant: str) -> None:
        account = self._accounts[tenant]
        account.num_waiting -= 1
        if not account.num_waiting:
            self._last_to_leave = account

    def _floor(self) -> float:
        """Where a returning tenant is lifted to: the smallest waiting counter, else that of who waited last."""
        waiting = [lane.smallest() for lane in self.lanes if len(lane)]
        if waiting:
            return min(waiting)
        return self._last_to_leave.counter if self._last_to_leave is not None else 0.0

    def counters(self) -> dict[str, float]:
        return {tenant: account.counter for tenant, account in self._accounts.items()}

    def raise_to(self, counters: Mapping[str, float]) -> None:
        for tenant, counter in counters.items():
            account = self.of(tenant)
            account.counter = max(account.counter, counter)

    def _forget_the_even(self, newest: Account) -> None:
        """Of tenants without requests, only those above the floor have something to remember."""
        floor = self._floor()
        for tenant, account in tuple(self._accounts.items()):
            if not (account.num_waiting or account.num_open or account.counter > floor or account is newest):
                del self._accounts[tenant]
        self._most_kept = 2 * len(self._accounts) + 1024


class FairLane:
    __slots__ = ("_accounts", "_flows", "_num_turns", "_num_waiting", "_turns", "_waits_for_turn")

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        accounts.lanes.append(self)
        self._flows: dict[str, FlowQueue] = {}
        self._turns: list[tuple[float, int, str]] = []  # counter (perhaps an old one), age, tenant
        self._waits_for_turn: set[str] = set()  # tenants that have an entry in `_turns`
        self._num_turns = 0
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[RequestState]:
        for flow in self._flows.values():
            yield from flow

    @property
    def num_flows(self) -> int:
        return len(self._flows)

    def push(self, state: RequestState, /) -> None:
        tenant = state.request.tenant
        account = self._accounts.join(tenant)
        self._flows.setdefault(tenant, FlowQueue()).push(state)
        self._num_waiting += 1
        if tenant not in self._waits_for_turn:
            self._waits_for_turn.add(tenant)
            self._take_turn(account.counter, tenant)

    def _take_turn(self, counter: float, tenant: str) -> None:
        self._num_turns += 1
        heappush(self._turns, (counter, self._num_turns, tenant))

    def remove(self, state: RequestState, /) -> None:
        tenant = state.request.tenant
        flow = self._flows[tenant]
        flow.remove(state)
        if not flow:
            del self._flows[tenant]
            if len(self._turns) > 2 * len(self._flows) + 8:
                self._turns = [turn for turn in self._turns if turn[2] in self._flows]
                heapify(self._turns)
                self._waits_for_turn &= self._flows.keys()
        self._accounts.leave(tenant)
        self._num_waiting -= 1

    def _next_flow(self) -> FlowQueue:
        while True:
            counter, _, tenant = self._turns[0]
            flow = self._flows.get(tenant)
            if flow is None:
                heappop(self._turns)
                self._waits_for_turn.discard(tenant)
                continue
            now = self._accounts.of(tenant).counter
            if counter == now:
                return flow
            heappop(self._turns)
            self._take_turn(now, tenant)

    def smallest(self) -> float:
        self._next_flow()
        return self._turns[0][0]

    def head(self) -> RequestState:
        return self._next_flow().head()

    def standing(self) -> OrderKey:
        key = self.head().key
        return (key[0], self._turns[0][0], *key[1:])

    def followers(self, count: int, /) -> list[RequestState]:
        return self._next_flow().followers(count)


class VirtualTokenCounter:
    __slots__ = ("_accounts", "_charged", "_input_weight", "_output_weight", "_weights", "name")

    def __init__(self, input_weight: float, output_weight: float, tenant_weights: Iterable[tuple[str, float]]) -> None:
        self.name = "vtc"
        self._input_weight = input_weight
        self._output_weight = output_weight
        self._weights = dict(tenant_weights)
        self._accounts: dict[float, Accounts] = {}
        self._charged: dict[RequestId, Account] = {}

    def flow_of(self, lane: str, request: Request, /) -> str:
        return f"{lane}/{request.tenant}"

    def lane(self, rank: float, /) -> Lane:
        return FairLane(self._accounts_of(rank))

    def _accounts_of(self, rank: float) -> Accounts:
        return self._accounts.setdefault(rank, Accounts(self._weights))

    def admitted(self, state: RequestState, num_tokens: int, /) -> None:
        account = self._open(state)
        account.counter += self._input_weight * num_tokens / account.weight

    def _open(self, state: RequestState) -> Account:
        """The account of a request that is charged for the first time."""
        account = self._accounts_of(state.key[0]).of(state.request.tenant)
        self._charged[state.request.id] = account
        account.num_open += 1
        return account

    def served(self, chunks: Iterable[Chunk], /) -> None:
        charged, weight = self._charged, self._output_weight
        for chunk in chunks:
            if chunk[4]:
                account = charged.get(chunk[0])
                if account is not None:
                    account.counter += weight / account.weight

    def ended(self, request_id: RequestId, /) -> None:
        account = self._charged.pop(request_id, None)
        if account is not None:
            account.num_open -= 1

    def take_over(self, previous: Fairness, running: Iterable[RequestState], /) -> None:
        for state in running:
            self._open(state)
        if isinstance(previous, VirtualTokenCounter):
            for rank, accounts in previous._accounts.items():
                self._accounts_of(rank).raise_to(accounts.counters())

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]:
        smallest = min([1.0, *self._weights.values()])
        gap = 2 * max(self._input_weight, self._output_weight) * tokens_of_one_batch(limits) / smallest
        return (
            Bound(
                SERVICE_GAP,
                gap,
                "weighted tokens",
                f"Of two tenants that both have requests waiting in one lane all the while, neither gets more than "
                f"{gap:g} weighted tokens (divided by its weight) more service than the other, however long.",
            ),
        )


def tokens_of_one_batch(limits: Limits) -> float:
    """The most tokens that requests which run together can come to, the last of them having been let in.

    A tenant whose turn it is not gets no more than what its running requests still make. If all ended at once, that
    were the tokens in memory; but they may end one after the other, each leaving its room to the rest: with n of them
    the last may have all of it, the one before half, and so on.
    """
    pool = limits.num_blocks * limits.block_size + limits.max_num_seqs  # last tokens are not stored
    in_turn = pool * sum([1 / n for n in range(1, limits.max_num_seqs + 1)])
    return min(in_turn, limits.max_num_seqs * limits.max_model_len)
