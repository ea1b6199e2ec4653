"""The workload file that evenflow and the engines it is measured against all read: JSON with three workloads.

    w1            requests that are all there from the start       (throughput)
    w2            one request                                      (speed of a single stream)
    w3            requests that come one by one                    (latency under load)
    w3_unit_gaps  seconds from the arrival before, at one request per second; divide by the rate

`generate` makes the same file again from the same seed and tokenizer. Lengths are log-normal, clipped: prompts of mean
187 tokens, outputs of mean 104.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from evenflow.core.errors import ConfigError
from evenflow.files.bounded_file import read_at_most
from evenflow.workload.synthesize import PromptTokenizer, prompt_of_length
from evenflow.workload.trace import TraceError

MAX_FILE_BYTES = 512 * 2**20

_TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
_MaxTokens = Annotated[int, Meta(ge=1, lt=2**31)]
_Gap = Annotated[float, Meta(ge=0.0)]


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """`prompt` encodes to `prompt_token_ids`, for engines that take text only. The output is `max_tokens` long."""

    id: int
    prompt: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class PeerWorkload:
    seed: int
    w1: tuple[PeerRequest, ...]
    w2: tuple[PeerRequest, ...]
    w3: tuple[PeerRequest, ...]
    w3_unit_gaps: tuple[float, ...]

    def w3_arrival_seconds(self, rate: float) -> tuple[float, ...]:
        """When each request of w3 comes, at `rate` requests per second; the first comes at 0."""
        if not rate > 0.0:
            raise ConfigError(f"rate must be above 0, not {rate}")
        return tuple(accumulate(gap / rate for gap in self.w3_unit_gaps))


class _RequestInFile(msgspec.Struct, forbid_unknown_fields=True):
    """What a file may hold; stricter than the type."""

    id: int
    prompt: str
    prompt_token_ids: Annotated[tuple[_TokenId, ...], Meta(min_length=1)]
    max_tokens: _MaxTokens

    def request(self) -> PeerRequest:
        return PeerRequest(self.id, self.prompt, self.prompt_token_ids, self.max_tokens)


_RequestsInFile = Annotated[tuple[_RequestInFile, ...], Meta(min_length=1)]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    seed: int
    w1: _RequestsInFile
    w2: _RequestsInFile
    w3: _RequestsInFile
    w3_unit_gaps: tuple[_Gap, ...]


def read_workload(path: Path) -> PeerWorkload:
    try:
        data = read_at_most(path, MAX_FILE_BYTES)
        if data is None:
            raise TraceError(f"{path} has more bytes than a workload file may have ({MAX_FILE_BYTES})")
        file = msgspec.json.decode(data, type=_File)
    except OSError as error:
        raise TraceError(f"cannot read the workload {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} is not a workload file: {error}") from error
    if len(file.w3_unit_gaps) != len(file.w3):
        raise TraceError(f"{path}: w3_unit_gaps has {len(file.w3_unit_gaps)} entries for {len(file.w3)} requests in w3")
    w1, w2, w3 = (tuple(request.request() for request in part) for part in (file.w1, file.w2, file.w3))
    return PeerWorkload(file.seed, w1, w2, w3, file.w3_unit_gaps)


def write_workload(workload: PeerWorkload, path: Path) -> None:
    try:
        path.write_bytes(msgspec.json.encode(asdict(workload)))
    except OSError as error:
        raise TraceError(f"cannot write the workload {path}: {error.strerror}") from error


def generate(tokenizer: PromptTokenizer, *, seed: int = 0, num_w1: int = 128, num_w3: int = 96) -> PeerWorkload:
    if num_w1 < 1 or num_w3 < 1:
        raise ConfigError(f"a workload needs requests: w1 has {num_w1}, w3 has {num_w3}")
    w1 = _requests(Random(seed), tokenizer, num_w1)
    single = prompt_of_length(Random(seed + 1), tokenizer, 128)
    rng = Random(seed + 2)
    w3 = _requests(rng, tokenizer, num_w3)
    return PeerWorkload(
        seed=seed,
        w1=w1,
        w2=(PeerRequest(0, single.text, single.token_ids, 128),),
        w3=w3,
        w3_unit_gaps=_unit_gaps(rng, num_w3),
    )


def _requests(rng: Random, tokenizer: PromptTokenizer, count: int) -> tuple[PeerRequest, ...]:
    requests = []
    for index in range(count):
        num_prompt_tokens = _clipped_lognormal(rng, mean=187, sigma=0.70, most=512)
        max_tokens = _clipped_lognormal(rng, mean=104, sigma=0.65, most=256)
        prompt = prompt_of_length(rng, tokenizer, num_prompt_tokens)
        requests.append(PeerRequest(index, prompt.text, prompt.token_ids, max_tokens))
    return tuple(requests)


def _clipped_lognormal(rng: Random, *, mean: float, sigma: float, most: int, least: int = 16) -> int:
    mu = math.log(mean) - sigma * sigma / 2
    return round(min(most, max(least, rng.lognormvariate(mu, sigma))))


def _unit_gaps(rng: Random, count: int) -> tuple[float, ...]:
    """Of a Poisson process, scaled so that the mean rate is exactly one; the first request comes at once."""
    gaps: Sequence[float] = [rng.expovariate(1.0) for _ in range(count)]
    rest = gaps[1:]
    scale = len(rest) / sum(rest) if rest else 1.0
    return (0.0, *(gap * scale for gap in rest))
