"""Where the server listens, and who can reach it there."""

import ipaddress
import socket
from dataclasses import dataclass

from evenflow.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Port 0 takes any free port."""

    host: str = "127.0.0.1"
    port: int = 8000
    shutdown_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535, not {self.port}")
        if not self.shutdown_timeout_seconds >= 0:
            raise ConfigError(f"shutdown-timeout must be 0 or more seconds, not {self.shutdown_timeout_seconds}")


def check_binding(host: str, *, has_keys: bool, allow_unauthenticated: bool) -> None:
    """Raises ConfigError where other machines could reach the server without a key and nobody said that they may."""
    if not has_keys and not allow_unauthenticated and not is_loopback(host):
        raise ConfigError(
            f"host {host!r} can be reached from other machines. Set an API key (in the environment as "
            "EVENFLOW_API_KEY, with --api-key, or one for each tenant with --api-keys-file), or listen on 127.0.0.1 "
            "only (leave out --host), or let everybody in with --allow-unauthenticated"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(settings: ServeSettings) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ConfigError(f"Cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
