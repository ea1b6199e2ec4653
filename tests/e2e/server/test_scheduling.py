"""What a client may say about scheduling, and what an administrator may see and change."""

import asyncio
from typing import Any

import pytest

from e2e.server.scripted import MODEL, Client, Exchange, echo_backwards, run, world
from evenflow.core.request import DEFAULT_CLASS, DEFAULT_TENANT, Request
from evenflow.server.admin import ADMIN_PATH
from evenflow.server.api_keys import ApiKeys

COMPLETIONS = "/v1/completions"
KEY = {"authorization": "Bearer secret"}


async def asked(fields: dict[str, object], headers: dict[str, str] | None = None) -> Request:
    engine, client = world(echo_backwards, now=lambda: 100.0)
    answer = await client.post(COMPLETIONS, {"model": MODEL, "prompt": "abc", **fields}, headers)
    assert answer.status == 200, answer.body
    return engine.calls[0].request


async def refused(fields: dict[str, object], headers: dict[str, str] | None = None) -> dict[str, Any]:
    _, client = world(echo_backwards)
    answer = await client.post(COMPLETIONS, {"model": MODEL, "prompt": "abc", **fields}, headers)
    assert answer.status == 400
    error: dict[str, Any] = answer.json()["error"]  # Any: JSON
    return error


def test_without_a_wish_a_request_is_like_every_other() -> None:
    request = asyncio.run(asked({}))
    assert (request.service_class, request.tenant, request.priority) == (DEFAULT_CLASS, DEFAULT_TENANT, 0)
    assert request.ttft_deadline is None


@pytest.mark.parametrize(
    ("tier", "service_class"),
    [("priority", "interactive"), ("default", DEFAULT_CLASS), ("auto", DEFAULT_CLASS), ("flex", "batch")],
)
def test_the_service_tier_is_a_class(tier: str, service_class: str) -> None:
    assert asyncio.run(asked({"service_tier": tier})).service_class == service_class


def test_user_is_the_tenant_and_the_body_wins_over_headers() -> None:
    headers = {"x-priority": "7", "x-ttft-deadline-ms": "500"}
    request = asyncio.run(asked({"user": "acme"}, headers))
    assert (request.tenant, request.priority, request.ttft_deadline) == ("acme", 7, 100.5)
    request = asyncio.run(asked({"priority": -3, "ttft_deadline_ms": 250}, headers))
    assert (request.priority, request.ttft_deadline) == (-3, 100.25)


@pytest.mark.parametrize(
    ("fields", "headers", "param"),
    [
        ({"service_tier": "gold"}, {}, "service_tier"),
        ({"user": "x" * 1000}, {}, "user"),
        ({"ttft_deadline_ms": 0}, {}, "ttft_deadline_ms"),
        ({"ttft_deadline_ms": -1}, {}, "ttft_deadline_ms"),
        ({"ttft_deadline_ms": 1e12}, {}, "ttft_deadline_ms"),
        ({}, {"x-ttft-deadline-ms": "soon"}, "x-ttft-deadline-ms"),
        ({}, {"x-ttft-deadline-ms": "nan"}, "x-ttft-deadline-ms"),
        ({}, {"x-ttft-deadline-ms": "inf"}, "x-ttft-deadline-ms"),
        ({}, {"x-priority": "high"}, "x-priority"),
        ({}, {"x-priority": "99999999999999"}, "x-priority"),
    ],
)
def test_a_wish_that_makes_no_sense_names_its_field(
    fields: dict[str, object], headers: dict[str, str], param: str
) -> None:
    assert asyncio.run(refused(fields, headers))["param"] == param


async def patch(client: Client, body: bytes, headers: dict[str, str] | None = None) -> Exchange:
    exchange = client.open("PATCH", ADMIN_PATH, KEY if headers is None else headers)
    exchange.upload(body)
    return await exchange.finish()


def test_the_policy_is_shown_with_its_bounds_and_changed() -> None:
    async def scenario() -> None:
        engine, client = world(admin_key="secret")
        body = (await client.get(ADMIN_PATH, KEY)).json()
        assert body["policy"]["order"] == "fcfs"
        assert {"name", "value", "unit", "sentence"} == set(body["bounds"][0])
        changed = await patch(client, b'{"order": "priority"}')
        assert changed.status == 200
        assert changed.json()["policy"]["order"] == engine.spec.order == "priority"

    run(scenario())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"odrer": "fcfs"}', "odrer"),
        (b'{"order": "fifo"}', "order"),
        (b'{"order": 1}', "order"),
        (b'{"interleave": "shared", "min_prefill_share": 2}', "min_prefill_share"),
        (b'{"max_num_seqs": 1000000000000000000000000}', "max_num_seqs"),
        (b"[]", None),
        (b"{", None),
        (b"", None),
        (b"[" * 100_000, None),
        (b'{"order": "' + b"x" * (1 << 20) + b'"}', None),
    ],
)
def test_a_change_that_cannot_be_changes_nothing_and_says_what_would_do(body: bytes, param: str | None) -> None:
    async def scenario() -> None:
        engine, client = world(admin_key="secret")
        before = engine.spec
        answer = await patch(client, body)
        assert answer.status == 400
        assert answer.json()["error"]["param"] == param
        assert engine.spec == before

    run(scenario())


def test_an_api_key_opens_no_admin_door_and_the_admin_key_no_other() -> None:
    async def scenario() -> None:
        _, client = world(admin_key="secret", api_keys=ApiKeys.one("public"))
        assert (await client.get(ADMIN_PATH)).status == 401
        assert (await client.get(ADMIN_PATH, {"authorization": "Bearer public"})).status == 401
        assert (await patch(client, b"{}", {"authorization": "Bearer public"})).status == 401
        assert (await client.get(ADMIN_PATH, KEY)).status == 200
        assert (await client.get("/v1/models", KEY)).status == 401

    run(scenario())


def test_a_key_of_its_own_is_the_tenant_whatever_the_body_says() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards, api_keys=ApiKeys({"k-acme": "acme", "k-zeta": "zeta"}))
        for key, fields in (("k-zeta", {"user": "acme"}), ("k-acme", {})):
            headers = {"authorization": f"Bearer {key}"}
            assert (await client.post(COMPLETIONS, {"prompt": "a", **fields}, headers)).status == 200
        assert [call.request.tenant for call in engine.calls] == ["zeta", "acme"]
        assert (await client.post(COMPLETIONS, {"prompt": "a"}, {"authorization": "Bearer k-acm"})).status == 401

    run(scenario())


def test_without_an_admin_key_nobody_may() -> None:
    async def scenario() -> None:
        _, client = world()
        answer = await client.get(ADMIN_PATH, {"authorization": "Bearer "})
        assert answer.status == 403
        assert "EVENFLOW_ADMIN_KEY" in answer.json()["error"]["message"]

    run(scenario())


def test_a_change_in_the_address_is_refused_and_not_passed_over() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards, admin_key="secret")
        for method in ("GET", "PATCH"):
            exchange = client.open(method, f"{ADMIN_PATH}?preset=sarathi", KEY)
            exchange.upload(b"{}")
            answer = await exchange.finish()
            assert (answer.status, answer.json()["error"]["param"]) == (400, "preset")
        # What clients of other services put behind every address does no harm on the routes that they know.
        assert (await client.get("/v1/models?api-version=2024-10-21")).status == 200
        assert (await client.get("/health?verbose=1")).status == 200

    run(scenario())
