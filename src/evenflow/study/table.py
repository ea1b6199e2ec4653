"""The ten experiments of the study, in the order of the argument."""

from evenflow.study import (
    ageing,
    chunk_size,
    concurrency_cap,
    interleaves,
    kv_share,
    long_prompts,
    one_pool,
    preemption,
    static_batching,
    token_budget,
)
from evenflow.study.experiment import Experiment

EXPERIMENTS = (
    Experiment("static-batching", "What does a fixed batch waste?", static_batching.measure),
    Experiment("token-budget", "How many tokens should a step have?", token_budget.measure),
    Experiment("concurrency-cap", "How many requests should run at once?", concurrency_cap.measure),
    Experiment("kv-share", "What does KV memory buy?", kv_share.measure),
    Experiment("interleaves", "Newcomers or running streams first?", interleaves.measure),
    Experiment("chunk-size", "In what pieces should a long prompt come in?", chunk_size.measure),
    Experiment("long-prompts", "How much may long prompts have while short ones wait?", long_prompts.measure),
    Experiment("ageing", "What keeps long prompts from starving behind short ones?", ageing.measure),
    Experiment("preemption", "Compute a victim again, or copy it?", preemption.measure, live=False),
    Experiment("one-pool", "One pool for online and offline work, or two?", one_pool.measure, live=False),
)
