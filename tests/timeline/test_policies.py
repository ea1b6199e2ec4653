"""What policies are for, as pictures: each is a trap that a scheduler can fall into, and what is done about it.

The legend is in picture.py. The traps are real ones, of several engines; the scenarios are made small here.
"""

from dataclasses import replace
from textwrap import dedent

from evenflow.core.policy.presets import policy_of
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from world import World

RANKED = (ClassSpec("interactive", rank=0), ClassSpec("default", rank=1), ClassSpec("batch", rank=2))
LONG = PolicySpec(
    long_prompts="limited", long_prompt_tokens=8, long_prompt_share=0.5, min_long_prompt_tokens=2, max_long_prefills=1
)


def shows(world: World, expected: str) -> None:
    assert world.run().timeline() == dedent(expected).strip()


def test_a_long_prompt_in_front_does_not_starve_the_short_ones() -> None:
    world = World(budget=8, policy=LONG).arrive("long", prompt=30, max_tokens=2)
    for number in range(4):
        world.arrive(f"s{number}", prompt=3, max_tokens=2, at=1 + number)
    shows(
        world,
        """
        time       0     1     2      3      4      5     6
        long 30+2  8     5     4      4      4      5*    *     length
        s0 3+2           3*    *                                length
        s1 3+2                 3*     *                         length
        s2 3+2                        3*     *                  length
        s3 3+2                               3*     *           length
        tokens     8/8   8/8   8/8    8/8    8/8    6/8   1/8
        blocks     8/64  9/64  10/64  10/64  10/64  9/64  8/64
        door
        """,
    )


def test_a_stream_of_short_prompts_does_not_keep_a_long_one_from_finishing() -> None:
    """The order prefers the short; two tokens of each step are the long one's own."""
    policy = replace(LONG, order="shortest-prompt", overtake_per_token=1.0, max_overtake=50.0)
    world = World(budget=6, seqs=20, policy=policy).arrive("long", prompt=12, max_tokens=1)
    for number in range(7):
        world.arrive(f"s{number}", prompt=6, max_tokens=1, at=number)
    shows(
        world,
        """
        time       0     1     2          3          4          5          6          7          8
        long 12+1  2     2     2          2          2          2*                                     length
        s0 6+1     4     2*                                                                            length
        s1 6+1           2     4*                                                                      length
        s2 6+1                 .          4          2*                                                length
        s3 6+1                            .          2          4*                                     length
        s4 6+1                                       .          .          6*                          length
        s5 6+1                                                  .          .          6*               length
        s6 6+1                                                             .          .          6*    length
        tokens     6/6   6/6   6/6        6/6        6/6        6/6        6/6        6/6        6/6
        blocks     5/64  7/64  5/64       5/64       7/64       5/64       2/64       2/64       2/64
        door                   s2:budget  s3:budget  s4:budget  s4:budget  s5:budget  s6:budget
        """,
    )


def test_long_prompts_that_must_wait_take_no_seat_from_the_short() -> None:
    """Deferred requests that count as running would fill the house, and nobody would ever come in."""
    world = World(budget=8, seqs=3, policy=LONG)
    for number in range(3):
        world.arrive(f"l{number}", prompt=12, max_tokens=1)
    for number in range(3):
        world.arrive(f"s{number}", prompt=2, max_tokens=2, at=1)
    shows(
        world,
        """
        time     0                            1                                          2                                                3                            4     5
        l0 12+1  8                            4*                                                                                                                                   length
        l1 12+1  .                            .                                          6                                                6*                                       length
        l2 12+1  .                            .                                          .                                                .                            7     5*    length
        s0 2+2                                2*                                         *                                                                                         length
        s1 2+2                                2*                                         *                                                                                         length
        s2 2+2                                .                                          .                                                2*                           *           length
        tokens   8/8                          8/8                                        8/8                                              8/8                          8/8   5/8
        blocks   3/64                         5/64                                       5/64                                             4/64                         4/64  3/64
        door     default+long/l1:long_prompt  default+long/l1:long_prompt all/s2:budget  default+long/l2:long_prompt all/s2:max_num_seqs  default+long/l2:long_prompt
        """,
    )


def test_a_second_partial_prefill_goes_on_beside_the_first() -> None:
    policy = replace(LONG, max_long_prefills=2, long_prompt_share=1.0)
    world = (
        World(budget=8, policy=policy)
        .arrive("first", prompt=14, max_tokens=1)
        .arrive("second", prompt=10, max_tokens=1)
    )
    world.arrive("short", prompt=2, max_tokens=2, at=1)
    shows(
        world,
        """
        time         0                                1             2             3     4
        first 14+1   8                                6*                                      length
        second 10+1  .                                2             8*                        length
        short 2+2                                     .             .             2*    *     length
        tokens       8/8                              8/8           8/8           2/8   1/8
        blocks       4/64                             7/64          3/64          1/64  1/64
        door         default+long/second:long_prompt  short:budget  short:budget
        """,
    )


def test_prefills_come_first_but_no_stream_stands_still_for_long() -> None:
    world = World(budget=6, policy=PolicySpec(interleave="prefill-first", max_skipped_steps=2))
    world.arrive("stream", prompt=2, max_tokens=6)
    for number in range(4):
        world.arrive(f"p{number}", prompt=12, max_tokens=1, at=1)
    shows(
        world,
        """
        time        0     1          2          3          4          5          6          7     8     9     10    11
        stream 2+6  2*    -          -          *          -          -          *          -     -     *     *     *     length
        p0 12+1           6          6*                                                                                   length
        p1 12+1           .          .          5          6          -          1*                                       length
        p2 12+1           .          .          .          .          6          4          2*                            length
        p3 12+1           .          .          .          .          .          .          4     6     2*                length
        tokens      2/6   6/6        6/6        6/6        6/6        6/6        6/6        6/6   6/6   3/6   1/6   1/6
        blocks      1/64  4/64       4/64       4/64       4/64       7/64       7/64       8/64  5/64  5/64  2/64  2/64
        door              p1:budget  p1:budget  p2:budget  p2:budget  p3:budget  p3:budget
        """,
    )


def test_small_requests_pass_one_that_does_not_fit_but_only_so_many() -> None:
    """A stream of small ones, or of ones that the cache makes small, does not starve a large cold one."""
    world = World(blocks=7, block_size=2, policy=PolicySpec(max_backfill=2)).arrive("runs", prompt=5, max_tokens=8)
    world.arrive("cold", prompt=9, max_tokens=2, at=1)
    for number in range(5):
        world.arrive(f"small{number}", prompt=1, max_tokens=2, at=1 + number)
    shows(
        world,
        """
        time        0     1        2        3        4        5        6        7        8          9          10    11
        runs 5+8    5*    *        *        *        *        *        *        *                                          length
        cold 9+2          .        .        .        .        .        .        .        9*         *                      length
        small0 1+2        1*       *                                                                                       length
        small1 1+2                 1*       *                                                                              length
        small2 1+2                          .        .        .        .        .        1*         *                      length
        small3 1+2                                   .        .        .        .        1*         *                      length
        small4 1+2                                            .        .        .        .          .          1*    *     length
        tokens      5/16  2/16     3/16     2/16     1/16     1/16     1/16     1/16     11/16      3/16       1/16  1/16
        blocks      3/7   4/7      6/7      5/7      5/7      5/7      6/7      6/7      7/7        7/7        1/7   1/7
        door              cold:kv  cold:kv  cold:kv  cold:kv  cold:kv  cold:kv  cold:kv  small4:kv  small4:kv
        """,
    )


def test_those_that_were_passed_keep_their_order() -> None:
    world = World(blocks=6, block_size=2, policy=PolicySpec(max_backfill=3)).arrive("runs", prompt=3, max_tokens=5)
    world.arrive("b1", prompt=9, max_tokens=2, at=1).arrive("b2", prompt=8, max_tokens=2, at=1)
    world.arrive("small", prompt=2, max_tokens=2, at=1).arrive("b3", prompt=7, max_tokens=2, at=1)
    shows(
        world,
        """
        time       0     1      2              3      4      5      6      7      8     9
        runs 3+5   3*    *      *              *      *                                       length
        b1 9+2           .      .              .      .      9*     *                         length
        b2 8+2           8*     x              .      .      .      .      9*                 length
        small 2+2        .      .              2*     *                                       length
        b3 7+2           .      .              .      .      .      .      .      7*    *     length
        tokens     3/16  9/16   1/16           3/16   2/16   9/16   1/16   9/16   7/16  1/16
        blocks     2/6   6/6    3/6            4/6    6/6    5/6    5/6    5/6    4/6   4/6
        door             b1:kv  b1:preemption  b1:kv  b1:kv  b2:kv  b2:kv  b3:kv
        """,
    )


def test_decodes_that_fill_the_budget_leave_an_urgent_prompt_its_share() -> None:
    policy = PolicySpec(order="priority", interleave="shared", min_prefill_share=0.3)
    world = World(budget=3, policy=policy)
    for name in "abc":
        world.arrive(name, prompt=1, max_tokens=7, priority=1)
    world.arrive("urgent", prompt=3, max_tokens=2, at=2)
    shows(
        world,
        """
        time        0     1     2     3     4     5     6     7     8
        a 1+7       1*    *     *     *     *     *     *                 length
        b 1+7       1*    *     *     -     *     -     *     *     *     length
        c 1+7       1*    *     -     *     -     *     *     *     *     length
        urgent 3+2              1     1     1*    *                       length
        tokens      3/3   3/3   3/3   3/3   3/3   3/3   3/3   2/3   2/3
        blocks      3/64  3/64  4/64  4/64  5/64  6/64  6/64  4/64  4/64
        door
        """,
    )


def test_interactive_work_displaces_batch_work_when_every_seat_is_taken() -> None:
    world = World(seqs=2, policy=PolicySpec(classes=RANKED))
    world.arrive("b1", prompt=3, max_tokens=6, service_class="batch")
    world.arrive("b2", prompt=3, max_tokens=5, service_class="batch")
    world.arrive("i", prompt=3, max_tokens=2, service_class="interactive", at=2)
    shows(
        world,
        """
        time    0     1     2              3                4     5     6
        b1 3+6  3*    *     *              *                *     *           length
        b2 3+5  3*    *     x              .                4~1*  *     *     length
        i 3+2               3*             *                                  length
        tokens  6/16  2/16  4/16           2/16             2/16  2/16  1/16
        blocks  2/64  2/64  3/64           3/64             4/64  4/64  2/64
        door                b2:preemption  b2:max_num_seqs
        """,
    )


def test_a_guaranteed_seat_is_kept_and_never_taken_back() -> None:
    classes = (*RANKED[:2], ClassSpec("batch", rank=2, guaranteed_seats=0.5))
    world = World(seqs=2, policy=PolicySpec(classes=classes))
    for number in range(3):
        world.arrive(f"i{number}", prompt=2, max_tokens=3, service_class="interactive")
    world.arrive("b", prompt=2, max_tokens=4, service_class="batch", at=1)
    shows(
        world,
        """
        time    0                     1                     2                3                4                5                     6     7     8
        i0 2+3  2*                    *                     *                                                                                          length
        i1 2+3  .                     .                     .                2*               *                *                                       length
        i2 2+3  .                     .                     .                .                .                .                     2*    *     *     length
        b 2+4                         2*                    *                *                *                                                        length
        tokens  2/16                  3/16                  2/16             3/16             2/16             1/16                  2/16  1/16  1/16
        blocks  1/64                  2/64                  2/64             2/64             3/64             1/64                  1/64  1/64  1/64
        door    interactive/i1:quota  interactive/i1:quota  i1:max_num_seqs  i2:max_num_seqs  i2:max_num_seqs  interactive/i2:quota
        """,
    )


def test_a_class_at_its_maximum_waits_and_others_pass() -> None:
    classes = (ClassSpec("default"), ClassSpec("batch", max_kv=0.5))
    world = World(blocks=8, block_size=2, policy=PolicySpec(classes=classes))
    world.arrive("b1", prompt=5, max_tokens=3, service_class="batch")
    world.arrive("b2", prompt=5, max_tokens=2, service_class="batch")
    world.arrive("d", prompt=5, max_tokens=2, at=1)
    shows(
        world,
        """
        time    0               1               2               3     4
        b1 5+3  5*              *               *                           length
        b2 5+2  .               .               .               5*    *     length
        d 5+2                   5*              *                           length
        tokens  5/16            6/16            2/16            5/16  1/16
        blocks  3/8             6/8             7/8             3/8   3/8
        door    batch/b2:quota  batch/b2:quota  batch/b2:quota
        """,
    )


def test_tenants_take_turns_by_the_service_they_had() -> None:
    world = World(seqs=1, policy=PolicySpec(fairness="vtc"))
    for number in range(4):
        world.arrive(f"a{number}", prompt=2, max_tokens=2, tenant="a")
    for number in range(2):
        world.arrive(f"b{number}", prompt=2, max_tokens=2, tenant="b", at=1)
    shows(
        world,
        """
        time    0                1                2                3                4                5                6                7                8                9                10    11
        a0 2+2  2*               *                                                                                                                                                                    length
        a1 2+2  .                .                .                .                2*               *                                                                                                length
        a2 2+2  .                .                .                .                .                .                .                .                2*               *                            length
        a3 2+2  .                .                .                .                .                .                .                .                .                .                2*    *     length
        b0 2+2                   .                2*               *                                                                                                                                  length
        b1 2+2                   .                .                .                .                .                2*               *                                                              length
        tokens  2/16             1/16             2/16             1/16             2/16             1/16             2/16             1/16             2/16             1/16             2/16  1/16
        blocks  1/64             1/64             1/64             1/64             1/64             1/64             1/64             1/64             1/64             1/64             1/64  1/64
        door    a1:max_num_seqs  a1:max_num_seqs  a1:max_num_seqs  a1:max_num_seqs  a2:max_num_seqs  b1:max_num_seqs  a2:max_num_seqs  a2:max_num_seqs  a3:max_num_seqs  a3:max_num_seqs
        """,
    )


def test_a_tenant_whose_turn_it_is_waits_for_memory_and_the_others_for_the_turn() -> None:
    world = World(blocks=6, block_size=2, policy=PolicySpec(fairness="vtc"))
    world.arrive("runs", prompt=3, max_tokens=4, tenant="a").arrive("big", prompt=9, max_tokens=1, tenant="b", at=1)
    world.arrive("small", prompt=1, max_tokens=1, tenant="a", at=1)
    shows(
        world,
        """
        time       0     1                                      2                                      3                                      4
        runs 3+4   3*    *                                      *                                      *                                             length
        big 9+1          .                                      .                                      .                                      9*     length
        small 1+1        .                                      .                                      .                                      1*     length
        tokens     3/16  1/16                                   1/16                                   1/16                                   10/16
        blocks     2/6   2/6                                    3/6                                    3/6                                    6/6
        door             default/b/big:kv default/big:fairness  default/b/big:kv default/big:fairness  default/b/big:kv default/big:fairness
        """,
    )


def test_a_static_batch_ends_before_the_next_begins() -> None:
    world = (
        World(seqs=3, policy=policy_of("static"))
        .arrive("a", prompt=3, max_tokens=2)
        .arrive("b", prompt=3, max_tokens=6)
    )
    world.arrive("c", prompt=3, max_tokens=3, at=1).arrive("d", prompt=2, max_tokens=2, at=2)
    shows(
        world,
        """
        time    0     1               2               3               4               5               6     7     8
        a 3+2   3*    *                                                                                                 length
        b 3+6   3*    *               *               *               *               *                                 length
        c 3+3         .               .               .               .               .               3*    *     *     length
        d 2+2                         .               .               .               .               2*    *           length
        tokens  6/16  2/16            1/16            1/16            1/16            1/16            5/16  2/16  1/16
        blocks  3/64  3/64            2/64            2/64            2/64            2/64            3/64  3/64  2/64
        door          c:static_batch  c:static_batch  c:static_batch  c:static_batch  c:static_batch
        """,
    )


def test_memory_for_the_whole_answer_is_set_aside_and_nobody_is_preempted() -> None:
    world = World(blocks=5, block_size=2, policy=PolicySpec(reserve="max"))
    world.arrive("a", prompt=3, max_tokens=4).arrive("b", prompt=2, max_tokens=4)
    shows(
        world,
        """
        time    0          1          2          3          4     5     6     7
        a 3+4   3*         *          *          *                                  length
        b 2+4   .          .          .          .          2*    *     *     *     length
        tokens  3/16       1/16       1/16       1/16       2/16  1/16  1/16  1/16
        blocks  3/5        3/5        3/5        3/5        3/5   3/5   3/5   3/5
        door    b:reserve  b:reserve  b:reserve  b:reserve
        """,
    )


def test_whole_prompts_are_not_split_unless_no_step_holds_them() -> None:
    world = World(budget=8, policy=PolicySpec(chunking="whole"))
    world.arrive("a", prompt=5, max_tokens=2).arrive("b", prompt=5, max_tokens=2).arrive("big", prompt=20, max_tokens=1)
    shows(
        world,
        """
        time      0           1     2     3     4
        a 5+2     5*          *                       length
        b 5+2     -           5*    *                 length
        big 20+1  .           -     7     8     5*    length
        tokens    5/8         6/8   8/8   8/8   5/8
        blocks    4/64        9/64  7/64  5/64  5/64
        door      big:budget
        """,
    )


def test_the_last_request_may_outgrow_all_others_and_fill_the_pool() -> None:
    world = World(blocks=5, block_size=2, budget=8, prefix_caching=False)
    world.arrive("a", prompt=3, max_tokens=6).arrive("b", prompt=3, max_tokens=8)
    shows(
        world,
        """
        time    0    1    2             3     4     5     6    7    8    9    10   11
        a 3+6   3*   *    *             *     *     *                                   length
        b 3+8   3*   *    x             .     .     .     5*   *    *    *    *    *    length
        tokens  6/8  2/8  1/8           1/8   1/8   1/8   5/8  1/8  1/8  1/8  1/8  1/8
        blocks  4/5  4/5  3/5           3/5   4/5   4/5   3/5  3/5  4/5  4/5  5/5  5/5
        door              b:preemption  b:kv  b:kv  b:kv
        """,
    )


def test_after_memory_was_taken_back_the_house_fills_again() -> None:
    """A preemption is a step without newcomers, and not the end of admission."""
    world = World(blocks=8, block_size=2, budget=16, prefix_caching=False)
    for number in range(5):
        world.arrive(f"r{number}", prompt=3, max_tokens=4)
    shows(
        world,
        """
        time    0      1      2              3      4      5     6     7
        r0 3+4  3*     *      *              *                               length
        r1 3+4  3*     *      *              *                               length
        r2 3+4  3*     *      x              .      5*     *                 length
        r3 3+4  3*     *      x              .      5*     *                 length
        r4 3+4  .      .      .              .      3*     *     *     *     length
        tokens  12/16  4/16   2/16           2/16   13/16  3/16  1/16  1/16
        blocks  8/8    8/8    6/8            6/8    8/8    8/8   3/8   3/8
        door    r4:kv  r4:kv  r2:preemption  r2:kv
        """,
    )


def test_more_decodes_than_the_budget_take_turns() -> None:
    """Seats were taken when the budget was larger; it is 2 from time 2 on."""
    world = World(budget=4, policy=PolicySpec(max_num_batched_tokens=4))
    for name in "abcd":
        world.arrive(name, prompt=1, max_tokens=5)
    world.change(PolicySpec(max_num_batched_tokens=2), at=2)
    shows(
        world,
        """
        time    0     1     2     3     4     5     6     7
        a 1+5   1*    *     *     -     *     -     *           length
        b 1+5   1*    *     *     -     *     -     *           length
        c 1+5   1*    *     -     *     -     *     -     *     length
        d 1+5   1*    *     -     *     -     *     -     *     length
        tokens  4/4   4/4   2/2   2/2   2/2   2/2   2/2   2/2
        blocks  4/64  4/64  4/64  4/64  4/64  6/64  8/64  4/64
        door
        """,
    )
