"""Scenarios as pictures (the legend is in picture.py). A change of scheduling shows here as a readable diff."""

from textwrap import dedent

from evenflow.core.policy.spec import PolicySpec
from world import World, tokens


def shows(world: World, expected: str) -> None:
    assert world.run().timeline() == dedent(expected).strip()


def test_mixed_lengths_share_iterations() -> None:
    world = World(budget=16, seqs=3)
    world.arrive("a", prompt=3, max_tokens=2).arrive("b", prompt=7, max_tokens=6).arrive("c", prompt=2, max_tokens=4)
    world.arrive("d", prompt=4, max_tokens=3, at=1)
    shows(
        world,
        """
        time    0      1               2     3     4     5
        a 3+2   3*     *                                       length
        b 7+6   7*     *               *     *     *     *     length
        c 2+4   2*     *               *     *                 length
        d 4+3          .               4*    *     *           length
        tokens  12/16  3/16            6/16  3/16  2/16  1/16
        blocks  4/64   4/64            5/64  7/64  5/64  3/64
        door           d:max_num_seqs
        """,
    )


def test_a_long_prompt_is_chunked_beside_decodes() -> None:
    world = World(budget=6).arrive("a", prompt=4, max_tokens=8).arrive("b", prompt=2, max_tokens=7)
    world.arrive("long", prompt=18, max_tokens=3, at=1)
    shows(
        world,
        """
        time       0     1     2     3     4     5      6      7
        a 4+8      4*    *     *     *     *     *      *      *     length
        b 2+7      2*    *     *     *     *     *      *            length
        long 18+3        4     4     4     4     2*     *      *     length
        tokens     6/6   6/6   6/6   6/6   6/6   4/6    3/6    2/6
        blocks     2/64  8/64  8/64  9/64  9/64  10/64  10/64  8/64
        door
        """,
    )


def test_memory_is_taken_from_the_back_and_recomputed() -> None:
    world = World(blocks=6, block_size=2, budget=8, prefix_caching=False)
    world.arrive("a", prompt=3, max_tokens=7).arrive("b", prompt=3, max_tokens=5).arrive("c", prompt=2, max_tokens=4)
    shows(
        world,
        """
        time    0    1    2             3     4             5     6     7    8    9
        a 3+7   3*   *    *             *     *             *     *                    length
        b 3+5   3*   *    *             *     x             .     .     7*             length
        c 2+4   2*   *    x             .     .             .     .     1    3*   *    length
        tokens  8/8  3/8  2/8           2/8   1/8           1/8   1/8   8/8  3/8  1/8
        blocks  5/6  6/6  6/6           6/6   4/6           4/6   5/6   6/6  2/6  3/6
        door              c:preemption  c:kv  b:preemption  b:kv  b:kv
        """,
    )


def test_a_resumed_request_finds_its_own_prefix_again() -> None:
    world = World(blocks=7, block_size=2, budget=8)
    world.arrive("a", prompt=3, max_tokens=5).arrive("b", prompt=7, max_tokens=4)
    shows(
        world,
        """
        time    0    1    2    3             4     5     6
        a 3+5   3*   *    *    *             *                length
        b 7+4   5    2*   *    x             .     6~3*  *    length
        tokens  8/8  3/8  2/8  1/8           1/8   3/8   1/8
        blocks  6/7  6/7  7/7  3/7           4/7   5/7   5/7
        door                   b:preemption  b:kv
        """,
    )


def test_a_swapped_request_goes_on_where_it_was() -> None:
    policy = PolicySpec(preemption="swap")
    world = World(blocks=7, block_size=2, host_blocks=3, prefix_caching=False, policy=policy)
    world.arrive("a", prompt=7, max_tokens=5).arrive("b", prompt=5, max_tokens=6)
    shows(
        world,
        """
        time    0      1     2             3     4     5     6     7     8
        a 7+5   7*     *     *             *     *                             length
        b 5+6   5*     *     x             .     .     6^1*  *     *     *     length
        tokens  12/16  2/16  1/16          1/16  1/16  1/16  1/16  1/16  1/16
        blocks  7/7    7/7   5/7           5/7   6/7   4/7   4/7   5/7   5/7
        door                 b:preemption  b:kv  b:kv
        """,
    )


def test_a_repeated_prompt_is_reused_up_to_its_last_token() -> None:
    world = World(block_size=4, budget=16)
    world.arrive("first", prompt=tokens("same", 9), max_tokens=2)
    world.arrive("again", prompt=tokens("same", 9), max_tokens=2, at=3)
    world.arrive("salted", prompt=tokens("same", 9), max_tokens=2, at=3, salt="other")
    shows(
        world,
        """
        time        0     1     3      4
        first 9+2   9*    *                  length
        again 9+2               8~1*   *     length
        salted 9+2              9*     *     length
        tokens      9/16  1/16  10/16  2/16
        blocks      3/64  3/64  6/64   6/64
        door
        """,
    )


def test_an_urgent_request_displaces_when_every_seat_is_taken() -> None:
    world = World(seqs=2, budget=8, policy=PolicySpec(order="priority"))
    world.arrive("a", prompt=3, max_tokens=6, priority=1).arrive("b", prompt=3, max_tokens=6, priority=1)
    world.arrive("urgent", prompt=5, max_tokens=2, priority=0, at=2)
    shows(
        world,
        """
        time        0     1     2             3               4     5     6     7
        a 3+6       3*    *     *             *               *     *                 length
        b 3+6       3*    *     x             .               4~1*  *     *     *     length
        urgent 5+2              5*            *                                       length
        tokens      6/8   2/8   6/8           2/8             2/8   2/8   1/8   1/8
        blocks      2/64  2/64  4/64          4/64            4/64  4/64  2/64  2/64
        door                    b:preemption  b:max_num_seqs
        """,
    )


def test_a_long_background_prompt_does_not_hold_up_an_urgent_one() -> None:
    world = World(budget=4, policy=PolicySpec(order="priority"))
    world.arrive("long", prompt=20, max_tokens=2, priority=1)
    world.arrive("urgent", prompt=7, max_tokens=3, priority=0, at=1)
    shows(
        world,
        """
        time        0     1     2     3     4     5     6     7     8
        long 20+2   4     -     1     3     3     4     4     1*    *     length
        urgent 7+3        4     3*    *     *                             length
        tokens      4/4   4/4   4/4   4/4   4/4   4/4   4/4   1/4   1/4
        blocks      5/64  7/64  7/64  7/64  8/64  5/64  5/64  5/64  6/64
        door
        """,
    )


def test_a_head_that_cannot_come_in_shuts_the_door_behind_it() -> None:
    world = World(blocks=6, block_size=2, budget=16)
    world.arrive("runs", prompt=3, max_tokens=4)
    world.arrive("big", prompt=9, max_tokens=2, at=1).arrive("small", prompt=1, max_tokens=2, at=1)
    shows(
        world,
        """
        time       0     1       2       3       4      5
        runs 3+4   3*    *       *       *                    length
        big 9+2          .       .       .       9*     *     length
        small 1+2        .       .       .       1*     *     length
        tokens     3/16  1/16    1/16    1/16    10/16  2/16
        blocks     2/6   2/6     3/6     3/6     6/6    6/6
        door             big:kv  big:kv  big:kv
        """,
    )


def test_an_abort_in_mid_chunk_frees_its_room_for_the_next_step() -> None:
    world = World(blocks=4, block_size=4, budget=4)
    world.arrive("long", prompt=13, max_tokens=2).arrive("next", prompt=6, max_tokens=2, at=1)
    world.abort("long", at=2, in_flight=True)
    shows(
        world,
        """
        time       0    1            2            3    4    5
        long 13+2  4    4            4!                          abort
        next 6+2        .            .            4    2*   *    length
        tokens     4/4  4/4          4/4          4/4  2/4  1/4
        blocks     4/4  4/4          4/4          2/4  2/4  2/4
        door            next:budget  next:budget
        """,
    )


def test_decodes_that_fill_the_budget_keep_newcomers_at_the_door() -> None:
    world = World(budget=2, seqs=4)
    world.arrive("a", prompt=1, max_tokens=3).arrive("b", prompt=1, max_tokens=4).arrive("c", prompt=1, max_tokens=2)
    shows(
        world,
        """
        time    0         1         2         3     4
        a 1+3   1*        *         *                     length
        b 1+4   1*        *         *         *           length
        c 1+2   .         .         .         1*    *     length
        tokens  2/2       2/2       2/2       2/2   1/2
        blocks  2/64      2/64      2/64      2/64  1/64
        door    c:budget  c:budget  c:budget
        """,
    )
