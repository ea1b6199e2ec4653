"""What may stand behind the `?` of an address: the names that its route knows, each once.

A parameter that does nothing is refused, as an unknown field of a body is: who asks for `?by=tenant` must not take the
answer for one by tenant. So do evenflow's own routes; those that OpenAI's clients, Prometheus, probes and browsers know
from elsewhere (`/v1/models`, `/metrics`, `/health`, the pages) let be what these may add to an address for reasons of
their own, such as an `api-version`.
"""

from starlette.requests import Request

from evenflow.core.errors import InvalidRequest

_SHOWN_CHARS = 32


def check_query(request: Request, *known: str) -> None:
    """Raises InvalidRequest, naming the parameter."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        shown = name[:_SHOWN_CHARS]
        if name not in known:
            takes = f"takes {' and '.join(known)}" if known else "takes none"
            raise InvalidRequest(f"Unknown query parameter {shown!r}; {request.url.path[:128]} {takes}", param=shown)
        if names.count(name) > 1:
            raise InvalidRequest(f"The query parameter {shown!r} is given more than once; give it once", param=shown)
