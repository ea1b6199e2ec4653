"""What every endpoint needs, in one value, made once by `create_app`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evenflow.core.errors import EngineDead, EngineUnavailable
from evenflow.engine.api import Engine, EngineFacts, EngineState
from evenflow.server.body import BodyReader
from evenflow.server.encoding import Tokenizer
from evenflow.server.errors import ShuttingDown, UnknownModel
from evenflow.server.jobs import Call, LiveJobs
from evenflow.server.limits import ServerLimits
from evenflow.server.logprobs import TokenTexts
from evenflow.server.prompts import Prompter
from evenflow.server.wishes import DEADLINE_HEADER, PRIORITY_HEADER, Wishes


@dataclass(frozen=True, slots=True)
class Front:
    """`started` is the Unix time when it was made; `now` is the monotonic clock of the event log."""

    engine: Engine
    tokenizer: Tokenizer
    token_texts: TokenTexts
    served_model_name: str
    limits: ServerLimits
    prompter: Prompter
    bodies: BodyReader
    live: LiveJobs
    now: Callable[[], float]
    unix_time: Callable[[], float]
    started: int
    render_metrics: Callable[[], tuple[bytes, str]]
    observe_n: Callable[[int], None]
    version: str

    def facts(self) -> EngineFacts:
        """Raises EngineUnavailable unless the engine takes requests."""
        engine = self.engine
        match engine.state:
            case EngineState.READY:
                return engine.facts
            case EngineState.STARTING:
                raise EngineUnavailable("The model is still loading; try again soon")
            case EngineState.DRAINING:
                raise ShuttingDown("The server is shutting down; send this to another one")
            case EngineState.DEAD:
                raise EngineDead(f"The engine is dead: {engine.death_reason or 'it did not say why'}")

    def check_model(self, model: str | None) -> None:
        """No name means the only model there is."""
        if model is not None and model != self.served_model_name:
            raise UnknownModel(
                f"The model {model[:128]!r} is not served here; use {self.served_model_name!r}", param="model"
            )

    def call(self, request_id: str, headers: Mapping[str, str], tenant: str | None) -> Call:
        """To be made when the body is complete. `tenant` is the one of the key that was shown, if that says it."""
        wishes = Wishes(headers.get(PRIORITY_HEADER), headers.get(DEADLINE_HEADER), tenant)
        return Call(request_id=request_id, created=int(self.unix_time()), arrival_time=self.now(), wishes=wishes)
