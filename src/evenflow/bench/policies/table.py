"""Every experiment on policies, by name."""

from collections.abc import Mapping

from evenflow.bench.policies import oversubscribed
from evenflow.bench.policies.experiment import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "oversubscribed",
            "What does preemption cost when twice as much KV cache is wanted as there is?",
            oversubscribed.measure,
        ),
    )
}
