"""Every experiment on policies, by name."""

from collections.abc import Mapping

from evenflow.bench.policies import (
    batch_class,
    budgets,
    long_prompt,
    oversubscribed,
    short_behind_long,
    static_batches,
    tenants,
)
from evenflow.bench.policies.experiment import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "oversubscribed",
            "What does preemption cost when twice as much KV cache is wanted as there is?",
            oversubscribed.measure,
        ),
        Experiment(
            "long-prompt",
            "How much do sixteen streams stutter while a prompt of 4,000 tokens comes in?",
            long_prompt.measure,
        ),
        Experiment(
            "short-behind-long",
            "How soon do short prompts behind a long one get their first token?",
            short_behind_long.measure,
        ),
        Experiment("budgets", "Does an ITL target give as much as the best fixed budget?", budgets.measure),
        Experiment("tenants", "What does a tenant get beside one who sends ten times as much?", tenants.measure),
        Experiment("batch-class", "What does batch work in the slack give, and cost?", batch_class.measure),
        Experiment("static", "What does static batching lose on answers of mixed lengths?", static_batches.measure),
    )
}
