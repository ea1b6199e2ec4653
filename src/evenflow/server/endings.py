"""How a sequence ended, as an answer says it."""

from msgspec import UNSET, UnsetType

from evenflow.core.errors import EngineUnavailable, EvenflowError
from evenflow.core.request import FinishReason
from evenflow.engine.api import Delta
from evenflow.server.replies import Finish


def check_ending(delta: Delta) -> None:
    """Raises for an ending that is nobody's answer."""
    match delta.finish_reason:
        case FinishReason.ABORT:
            raise EngineUnavailable("The request was aborted because the server is shutting down")
        case FinishReason.ERROR:
            raise EvenflowError("The engine failed to run this request; its log says why")
        case _:
            pass


def finish(delta: Delta) -> Finish | None:
    """Of a delta that passed `check_ending`."""
    if delta.finish_reason is None:
        return None
    return "length" if delta.finish_reason is FinishReason.LENGTH else "stop"


def stop_reason(delta: Delta) -> str | int | UnsetType:
    return UNSET if delta.stop_reason is None else delta.stop_reason
