"""Bodies that would hold up everybody else while they are decoded."""

import msgspec
import pytest

from evenflow.core.errors import InvalidRequest
from evenflow.server.body import MAX_JSON_VALUES, decode

DECODER = msgspec.json.Decoder(dict[str, object])


@pytest.mark.parametrize("value", [b"1", b"[]", b"{}", b'"x"'])
def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(value: bytes) -> None:
    body = b'{"prompt":[' + b",".join([value] * (MAX_JSON_VALUES + 1)) + b"]}"
    with pytest.raises(InvalidRequest, match="more than 1000000 values"):
        decode(DECODER, body)


def test_a_long_text_is_not_a_body_of_many_values() -> None:
    text = "word " * 400_000
    assert decode(DECODER, msgspec.json.encode({"prompt": text})) == {"prompt": text}
