"""What a full block holds, by name: equal hashes mean equal whole prefixes.

The hash of a block is taken over the hash of the block before it and its own tokens, starting from the request's
`cache_salt` (the scheme of vLLM's prefix cache, with SHA-256 because prompts are hostile input):

    h0 = H(salt)    h1 = H(h0, tokens[0:B])    h2 = H(h1, tokens[B:2B])    ...

A simulation has prompts whose content nobody knows and nobody shares, of which only the length is given: such a prompt
is a `range` under a salt of its own. Its blocks need names that no other block has, and a request's own after it was
preempted: they are numbered from H(salt) on, in a twentieth of the time.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256

from evenflow.core.block_pool import BlockHash
from evenflow.core.request import RequestState

_LOGGED_BYTES = 6


def extend_hashes(state: RequestState, count: int, block_size: int) -> None:
    """Bring `state.block_hashes` to at least `count`, of as many full blocks."""
    hashes = state.block_hashes
    last = hashes[-1] if hashes else sha256(state.request.cache_salt.encode()).digest()
    prompt: Sequence[int] = state.request.prompt_token_ids
    if type(prompt) is range:
        first = 1 + (last if isinstance(last, int) else int.from_bytes(last[:7], "little"))
        hashes += range(first, first + count - len(hashes))
        return
    while len(hashes) < count:
        begin = len(hashes) * block_size
        piece = state.token_ids[begin : begin + block_size]
        # Simulated content is an array already, all of one kind within a salt: 1.4 us a block instead of 4.7.
        tokens = array("q", piece).tobytes() if type(piece) is list else piece.tobytes()  # type: ignore[attr-defined]
        assert isinstance(last, bytes)
        last = sha256(last + tokens).digest()
        hashes.append(last)


def logged(block_hash: BlockHash) -> int:
    """The number by which the log says what a block held: equal ones are equal, others differ but for bad luck."""
    number = block_hash if isinstance(block_hash, int) else int.from_bytes(block_hash[:_LOGGED_BYTES], "little")
    return number & ((1 << 8 * _LOGGED_BYTES) - 1)
