"""The endpoints, each a few lines over the parts that do the work."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenflow.core.errors import InvalidRequest
from evenflow.engine.api import EngineState
from evenflow.engine.arguments import check_token_ids
from evenflow.server.body import decode
from evenflow.server.chat import ChatFormat, chat_job
from evenflow.server.completions import CompletionFormat, completion_job
from evenflow.server.encoding import Tokenizer
from evenflow.server.errors import RETRY_AFTER_SECONDS
from evenflow.server.front import Front
from evenflow.server.prompts import Conversation
from evenflow.server.replies import DetokenizedPrompt, Health, Index, Model, ModelList, Readiness, Tokens, Version
from evenflow.server.sampling import require
from evenflow.server.schema import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from evenflow.server.stream import JobResponse, unless_disconnected
from evenflow.server.tokens import PART_ITEMS, tokens_response

COMPLETION = msgspec.json.Decoder(CompletionRequest)
CHAT = msgspec.json.Decoder(ChatRequest)
TOKENIZE = msgspec.json.Decoder(TokenizeRequest)
DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


def spell(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    spelt: dict[int, str] = {}
    for start in range(0, len(ids), PART_ITEMS):  # a set of millions is made without letting go of the interpreter
        spelt.update((token_id, tokenizer.token_text(token_id)) for token_id in set(ids[start : start + PART_ITEMS]))
    return [spelt[token_id] for token_id in ids]


def json(payload: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(payload), status, headers, media_type="application/json")


class Routes:
    """The endpoints of one front."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def table(self) -> list[Route]:
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat_completions, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/version", self.version, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """For who opens the server in a browser, or takes its address for the API's."""
        routes = [route for route in request.app.routes if isinstance(route, Route)]
        endpoints = [f"{method} {route.path}" for route in routes for method in route.methods or () if method != "HEAD"]
        return json(Index(name="evenflow", version=self._front.version, endpoints=endpoints))

    async def completions(self, request: Request) -> Response:
        front = self._front
        front.facts()
        async with front.bodies.receive(request.scope, request.receive) as body:
            call = front.call(request.state.request_id, request.headers, getattr(request.state, "tenant", None))
            fields = decode(COMPLETION, body)
            job = await unless_disconnected(request.receive, completion_job(front, fields, call))
        front.observe_n(job.n)
        answer = CompletionFormat(job, front, echo=bool(fields.echo))
        return JobResponse(job, answer, front.engine, front.live, front.prompter.lanes)

    async def chat_completions(self, request: Request) -> Response:
        front = self._front
        front.facts()
        async with front.bodies.receive(request.scope, request.receive) as body:
            call = front.call(request.state.request_id, request.headers, getattr(request.state, "tenant", None))
            fields = decode(CHAT, body)
            job = await unless_disconnected(request.receive, chat_job(front, fields, call))
        front.observe_n(job.n)
        return JobResponse(job, ChatFormat(job, front), front.engine, front.live, front.prompter.lanes)

    async def models(self, request: Request) -> Response:
        return json(ModelList(object="list", data=[self._model()]))

    async def model(self, request: Request) -> Response:
        self._front.check_model(request.path_params["model"])
        return json(self._model())

    def _model(self) -> Model:
        front = self._front
        return Model(
            id=front.served_model_name,
            object="model",
            created=front.started,
            owned_by="evenflow",
            max_model_len=front.facts().max_model_len,
        )

    async def tokenize(self, request: Request) -> Response:
        front = self._front
        async with front.bodies.receive(request.scope, request.receive) as body:
            fields = decode(TOKENIZE, body)
            front.check_model(fields.model)
            tokens = await unless_disconnected(request.receive, self._tokens(fields))
        return tokens_response(tokens)

    async def _tokens(self, fields: TokenizeRequest) -> Tokens:
        front = self._front
        facts = front.facts()
        if (fields.prompt is None) == (fields.messages is None):
            raise InvalidRequest("Send either prompt or messages", param="prompt")
        add_special_tokens = fields.add_special_tokens is not False
        text, param = fields.prompt, "prompt"
        if text is None:
            conversation = Conversation.of(fields)
            text, add_special_tokens = await front.prompter.render(conversation), conversation.add_special_tokens
            param = "messages"
        # Completions are bound by the context; nothing else bounds this, and a tokenizer cannot be interrupted.
        most = front.limits.max_tokenize_chars
        require(len(text) <= most, param, f"has {len(text)} characters; this server takes at most {most} here")
        (ids,) = await front.prompter.encode([text], param, add_special_tokens=add_special_tokens)
        spelt = None
        if fields.return_token_strs:
            spelt = await front.prompter.lanes.run(len(ids), lambda: spell(front.tokenizer, ids))
        return Tokens(count=len(ids), max_model_len=facts.max_model_len, tokens=ids, token_strs=spelt)

    async def detokenize(self, request: Request) -> Response:
        front, tokenizer = self._front, self._front.tokenizer
        async with front.bodies.receive(request.scope, request.receive) as body:
            fields = decode(DETOKENIZE, body)
            front.check_model(fields.model)
            ids = fields.tokens
            if ids is None:
                raise InvalidRequest("tokens is missing", param="tokens")
            most = front.limits.max_detokenize_tokens
            require(len(ids) <= most, "tokens", f"has {len(ids)} ids; this server takes at most {most}")
            check_token_ids(ids, tokenizer.vocab_size, "tokens")
            work = front.prompter.lanes.run(len(ids), lambda: tokenizer.decode(ids, skip_special_tokens=False))
            return json(DetokenizedPrompt(prompt=await unless_disconnected(request.receive, work)))

    async def health(self, request: Request) -> Response:
        """Alive: 503 only when nothing but a restart will help."""
        engine = self._front.engine
        dead = engine.state is EngineState.DEAD
        body = Health(
            status="dead" if dead else "ok", engine=engine.state.value, reason=engine.death_reason if dead else None
        )
        return json(body, 503 if dead else 200)

    async def ready(self, request: Request) -> Response:
        """Accepting: 200 exactly when a request sent now would be taken."""
        state = self._front.engine.state
        ready = state is EngineState.READY
        body = Readiness(ready=ready, engine=state.value)
        if ready:
            return json(body)
        if state is EngineState.DEAD:
            return json(body, 503)
        return json(body, 503, {"retry-after": str(round(RETRY_AFTER_SECONDS))})

    async def metrics(self, request: Request) -> Response:
        body, content_type = self._front.render_metrics()
        return Response(body, media_type=content_type)

    async def version(self, request: Request) -> Response:
        return json(Version(version=self._front.version))
