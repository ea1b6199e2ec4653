"""Ways to break the policies and what they rest on; see bugs.py."""

from seeded_bugs.core_bugs import ADMIT, DRAFT, HOUSE, INTAKE, MEMORY_PASS, ORDER, ROOM, SCHEDULER, bug

FAIR, SPLIT, LONG = "policy/vtc.py", "policy/interleave.py", "policy/long_prompts.py"
BUDGET, RESERVE, CLASSES = "policy/budget.py", "policy/reserve.py", "policy/classes.py"
POLICY, NEW, STEP_TIME, LENGTHS, RATES = (
    "policy/scheduling.py",
    "newcomers.py",
    "step_time.py",
    "output_lengths.py",
    "rates.py",
)

ORDERS = (
    bug(
        "a short prompt may pass for ever",
        ORDER,
        "return (request.arrival_time + min(self.max_overtake, allowance),)",
        "return (request.arrival_time + allowance,)",
    ),
    bug(
        "a far deadline starves its request",
        ORDER,
        "else min(latest, request.ttft_deadline),)",
        "else request.ttft_deadline,)",
    ),
    bug(
        "a class's rank is forgotten",
        POLICY,
        "return (self.classes.of(request.service_class).rank, *",
        "return (0, *",
    ),
)

FAIRNESS = (
    bug(
        "output is not charged",
        FAIR,
        "account.counter += weight / account.weight",
        "account.counter += 0 * weight / account.weight",
    ),
    bug(
        "a tenant's weight works the wrong way round",
        FAIR,
        "account.counter += self._input_weight * num_tokens / account.weight",
        "account.counter += self._input_weight * num_tokens * account.weight",
    ),
    bug(
        "absence earns credit",
        FAIR,
        "            account.counter = max(account.counter, self._floor())\n",
        "            pass\n",
    ),
    bug(
        "a turn is taken at an old counter",
        FAIR,
        "            if counter == now:\n",
        "            if True:\n",
    ),
    bug(
        "lanes of one rank have counters of their own",
        FAIR,
        "return FairLane(self._accounts_of(rank))",
        "return FairLane(Accounts(self._weights))",
    ),
    bug(
        "a change of policy forgets the service that was given",
        SCHEDULER,
        "        policy.fairness.take_over(old.fairness, house.running)\n",
        "",
    ),
)

STEPS = (
    bug(
        "prefills may stop a stream for ever",
        SPLIT,
        "        self._longest_gap = longest_gap\n",
        "        self._longest_gap = 0\n",
    ),
    bug(
        "the same decodes are left out again and again",
        SCHEDULER,
        "            decodes.sort(key=lambda state: -gaps.get(state.request.id, 0))\n",
        "            pass\n",
    ),
    bug(
        "prefills have no share when decodes fill the budget",
        SPLIT,
        "        least, most = min(self._least(budget), backlog), self._most(budget)\n",
        "        least, most = 0, self._most(budget)\n",
    ),
    bug(
        "prefills exceed their share beside decodes",
        SPLIT,
        "        prefill_tokens = min(most, budget - decode_tokens)\n",
        "        prefill_tokens = budget - decode_tokens\n",
    ),
    bug(
        "in order, a decode behind a prefill is served before it",
        SPLIT,
        "            left -= remaining\n",
        "            left -= remaining == 1\n",
    ),
    bug(
        "a whole prompt is split",
        DRAFT,
        "not (policy.splits_prompts or is_long or left == split.prefill_tokens)",
        "not (policy.splits_prompts or is_long or True)",
    ),
    bug(
        "a long prompt has no tokens of its own",
        LONG,
        "        return PrefillShares(most, prefill_tokens - kept)\n",
        "        return PrefillShares(most, prefill_tokens)\n",
    ),
    bug(
        "long prompts take everything",
        LONG,
        "most = max(kept, int(self.share * prefill_tokens), prefill_tokens - short_backlog)",
        "most = prefill_tokens",
    ),
    bug(
        "one long prompt too many is in progress",
        ADMIT,
        "        if num_long >= policy.long_prompts.max_in_progress:\n",
        "        if num_long > policy.long_prompts.max_in_progress:\n",
    ),
    bug(
        "prefills stand still when the target is missed",
        BUDGET,
        "len(decodes) + max(self.min_prefill_tokens, fitting))",
        "len(decodes) + fitting)",
    ),
    bug(
        "the share of the target is not kept for prefills",
        BUDGET,
        "least_seconds=self.min_share * self.itl_target",
        "least_seconds=0.0",
    ),
    bug(
        "the budget is not asked for again after a displacement",
        SCHEDULER,
        "        if draft.preempted:  # perhaps",
        "        if False:  # perhaps",
    ),
)

ADMISSIONS = (
    bug(
        "a large request is passed without end",
        ADMIT,
        "        if any(state.num_passed_by >= most for state in passed):\n            return\n",
        "",
    ),
    bug(
        "only the head counts who passed it",
        ADMIT,
        "            passed.append(follower)\n",
        "            pass\n",
    ),
    bug(
        "a static batch takes newcomers in",
        ADMIT,
        "if house.policy.is_static and house.running else None",
        "if False else None",
    ),
    bug(
        "a class's maximum is one seat more",
        ROOM,
        "gone.get(mine.name, 0) >= mine.max_seats:",
        "gone.get(mine.name, 0) > mine.max_seats:",
    ),
    bug(
        "a class grows beyond its maximum",
        MEMORY_PASS,
        "at_maximum = mine.blocks + needed > mine.max_blocks",
        "at_maximum = False",
    ),
    bug(
        "a seat that another class is guaranteed is taken",
        ROOM,
        "        if free <= classes.kept_seats(mine, gone):\n",
        "        if False:\n",
    ),
    bug(
        "blocks that another class is guaranteed are taken",
        CLASSES,
        "max(0, each.guaranteed_blocks - each.blocks + gone.get(each.name, 0))",
        "0",
    ),
    bug(
        "a guarantee is taken back",
        ROOM,
        "return theirs.seats - self._gone_seats.get(theirs.name, 0) > theirs.guaranteed_seats",
        "return True",
    ),
    bug(
        "growth takes back what another class is guaranteed",
        MEMORY_PASS,
        "if theirs is mine or (not own_class and theirs.blocks > theirs.guaranteed_blocks):",
        "if theirs is mine or not own_class:",
    ),
    bug(
        "a preempted request's seat stays counted",
        HOUSE,
        "        mine.seats -= 1\n",
        "",
    ),
    bug(
        "the longest answer is set aside one block short",
        RESERVE,
        "return max(state.num_tokens, longest(state))",
        "return max(state.num_tokens, longest(state) - 1)",
    ),
    bug(
        "an answer is expected to be as long as the shortest",
        LENGTHS,
        "if seen >= enough)",
        "if seen > 0)",
    ),
)

QUEUES = (
    bug(
        "an expired request runs",
        NEW,
        "while self._by_deadline and self._by_deadline[0][0] <= now:",
        "while False:",
    ),
    bug(
        "the oldest of the worst class is shed",
        NEW,
        "chain.from_iterable(reversed(queue.states.values()) for",
        "chain.from_iterable(tuple(queue.states.values()) for",
    ),
    bug(
        "equals are shed",
        NEW,
        "if q.rank > rank)",
        "if q.rank >= rank)",
    ),
    bug(
        "one request too many waits",
        INTAKE,
        "num_requests + 1 - max_requests",
        "num_requests - max_requests",
    ),
    bug(
        "those behind count as ahead",
        NEW,
        "if key < bucket)",
        "if True)",
    ),
    bug(
        "a request that was shed stays in line",
        SCHEDULER,
        "    def _end_waiting(self, state: RequestState, reason: FinishReason, now: float) -> RequestOutput:\n"
        "        self._house.stop_waiting(state)\n",
        "    def _end_waiting(self, state: RequestState, reason: FinishReason, now: float) -> RequestOutput:\n"
        "        if reason is not FinishReason.SHED:\n            self._house.stop_waiting(state)\n",
    ),
    bug(
        "idle time counts as time in which the queue did not drain",
        RATES,
        "now if backlogged else None",
        "now",
    ),
    bug(
        "a change of policy strands a request",
        SCHEDULER,
        "        problems = [*self._stranded(policy)]\n",
        "        problems = []\n",
    ),
    bug(
        "a change of policy loses the order of acceptance",
        HOUSE,
        "            state.key = policy.key_of(state.request, state.key[-1])\n",
        "            state.key = policy.key_of(state.request, -state.key[-1])\n",
    ),
    bug(
        "an hour of decoding makes it forget what a prefill costs",
        STEP_TIME,
        "window = self._windows[kind]",
        "window = self._windows[0]",
    ),
    bug(
        "one slow step counts as it is",
        STEP_TIME,
        "return min(seconds, _MOST_LATE * fitted)",
        "return seconds",
    ),
    bug(
        "no time is left for surprises",
        STEP_TIME,
        "left = max(seconds / (1 + self._margin * self._usual_error) - spent",
        "left = max(seconds - spent",
    ),
    bug(
        "a slower machine is not followed",
        STEP_TIME,
        "self._pace[kind] = pace * (",
        "self._pace[kind] = 1.0 or (",
    ),
    bug(
        "a cost may be negative",
        STEP_TIME,
        "        if min(found) >= 0.0:\n",
        "        if True:\n",
    ),
)

POLICY_BUGS = (*ORDERS, *FAIRNESS, *STEPS, *ADMISSIONS, *QUEUES)
