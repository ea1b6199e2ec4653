"""What a full block holds, in 32 bytes: equal hashes mean equal whole prefixes.

The hash of a block is taken over the hash of the block before it and its own tokens, starting from the request's
`cache_salt` (the scheme of vLLM's prefix cache, with SHA-256 because prompts are hostile input):

    h0 = H(salt)    h1 = H(h0, tokens[0:B])    h2 = H(h1, tokens[B:2B])    ...

A simulation has prompts whose content nobody knows and nobody shares, of which only the length is given: such a prompt
is a `range` under a salt of its own. Its blocks need names that no other block has, and a request's own after it was
preempted: they are numbered from H(salt) on, in a tenth of the time.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256

from evenflow.core.request import RequestState

_COUNTED_BYTES = 6
"""What the log keeps of a hash must differ from block to block too (`Finished.content`)."""
_MASK = (1 << 8 * _COUNTED_BYTES) - 1


def extend_hashes(state: RequestState, count: int, block_size: int) -> None:
    """Bring `state.block_hashes` to at least `count`, of as many full blocks."""
    hashes = state.block_hashes
    root = sha256(state.request.cache_salt.encode()).digest() if not hashes else b""
    prompt: Sequence[int] = state.request.prompt_token_ids
    if type(prompt) is range:
        last = hashes[-1] if hashes else root
        number, rest = int.from_bytes(last[:_COUNTED_BYTES], "little"), last[_COUNTED_BYTES:]
        ordinals = range(number + 1, number + 1 + count - len(hashes))
        hashes += [(ordinal & _MASK).to_bytes(_COUNTED_BYTES, "little") + rest for ordinal in ordinals]
        return
    while len(hashes) < count:
        begin = len(hashes) * block_size
        piece = state.token_ids[begin : begin + block_size]
        # Simulated content is an array already, all of one kind within a salt: 1.4 us a block instead of 4.7.
        tokens = array("q", piece).tobytes() if type(piece) is list else piece.tobytes()  # type: ignore[attr-defined]
        hashes.append(sha256((hashes[-1] if hashes else root) + tokens).digest())
