"""What is written to a server: a streaming completion request, as bytes.

A prompt is a ready-made piece of JSON (prompts.py), so that writing a request of 100,000 tokens takes microseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import msgspec

from evenflow.core.errors import ConfigError
from evenflow.replay.connection import Address
from evenflow.replay.request import PlannedRequest

# What an OpenAI service_tier may be; another class is only a label of ours.
SERVICE_TIERS = frozenset({"auto", "default", "flex", "priority"})


class Endpoint(Enum):
    COMPLETIONS = "completions"
    CHAT = "chat"


class Prompts(Protocol):
    """Makes the content of prompts."""

    def prompt(self, plan: PlannedRequest) -> bytes:
        """JSON: an array of token ids, or a string."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """`fields` are those of every request's body, besides prompt, length, tenant and class; None leaves one out."""

    address: Address
    model: str
    endpoint: Endpoint = Endpoint.COMPLETIONS
    api_key: str | None = None
    fields: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in (self.address.host, self.address.path):
            if not _fits_a_head(text):
                raise ConfigError(f"{text!r} cannot be part of an HTTP head: only printable ASCII can")
        if not _fits_a_head(self.api_key or ""):  # which is not shown
            raise ConfigError("the API key cannot be part of an HTTP head: only printable ASCII can")

    @property
    def path(self) -> str:
        tail = "/v1/completions" if self.endpoint is Endpoint.COMPLETIONS else "/v1/chat/completions"
        return self.address.path + tail


def _fits_a_head(text: str) -> bool:
    return text.isascii() and text.isprintable()


STREAM_FIELDS: Mapping[str, object] = {
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


class RequestWriter:
    """Writes whole HTTP requests for one target."""

    def __init__(self, target: Target, prompts: Prompts) -> None:
        self._prompts = prompts
        match target.endpoint:
            case Endpoint.COMPLETIONS:
                self._prompt_field = b'"prompt":%b'
            case Endpoint.CHAT:
                self._prompt_field = b'"messages":[{"role":"user","content":%b}]'
        self._head = _head(target).encode()
        # Without its closing brace: more fields follow.
        fields = {"model": target.model, **STREAM_FIELDS, **target.fields}
        self._fields = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})[:-1]

    def write(self, plan: PlannedRequest) -> bytes:
        prompt = self._prompts.prompt(plan)
        prompt = self._prompt_field % prompt
        more = b',"max_tokens":%d%b,%b}' % (plan.max_tokens, _labels(plan), prompt)
        head = b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (
            self._head,
            plan.request_id.encode(),
            len(self._fields) + len(more),
        )
        return b"".join((head, self._fields, more))


def _head(target: Target) -> str:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.address.authority}",
        "content-type: application/json",
        "accept: text/event-stream",
    ]
    if target.api_key is not None:
        lines.append(f"authorization: Bearer {target.api_key}")
    return "".join(f"{line}\r\n" for line in lines)


def _labels(plan: PlannedRequest) -> bytes:
    labels: dict[str, str] = {}
    if plan.tenant is not None:
        labels["user"] = plan.tenant
    if plan.service_class in SERVICE_TIERS:
        labels["service_tier"] = plan.service_class
    return b"".join(b",%b:%b" % (msgspec.json.encode(k), msgspec.json.encode(v)) for k, v in labels.items())
