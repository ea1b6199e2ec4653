"""The order of runs."""

from evenflow.tune.turns import turns

CELLS = tuple("abcdefgh")


def test_every_second_round_is_the_one_before_backwards() -> None:
    for number in range(0, 8, 2):
        assert turns(CELLS, number + 1, 5) == turns(CELLS, number, 5)[::-1]


def test_all_take_part_and_rounds_are_drawn_anew() -> None:
    orders = [tuple(turns(CELLS, number, 5)) for number in range(0, 20, 2)]
    assert all(sorted(order) == sorted(CELLS) for order in orders)
    assert len(set(orders)) > 8
    assert turns(CELLS, 4, 5) == list(orders[2]), "whichever rounds were asked for before"
    assert turns(CELLS, 4, 6) != turns(CELLS, 4, 5)


def test_a_steady_drift_costs_all_the_same() -> None:
    places = dict.fromkeys(CELLS, 0)
    time = 0
    for number in range(6):
        for cell in turns(CELLS, number, 1):
            places[cell] += time
            time += 1
    assert len(set(places.values())) == 1
