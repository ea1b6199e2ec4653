"""A driver as the bench starts it, around an engine that counts instead of computing; what it does wrong is told.

python scripted_driver.py FOLDER_OF_PEER_DRIVER right|short|raises|dies|silent|babbles|never-ready
"""

import os
import sys
import threading

sys.path.insert(0, sys.argv[1])

from peer_driver import Prompts, Work, drive, timed  # type: ignore[import-not-found] # by its folder, as peers see it

manner = sys.argv[2]


def run(prompts: Prompts, max_tokens: list[int]) -> list[int]:
    sys.stdout.write("an engine that talks to stdout\n")
    match manner:
        case "short":
            return [each - 1 for each in max_tokens]
        case "raises":
            raise RuntimeError("no kernel for this")
        case "dies":
            sys.stderr.write("out of something\n")
            os._exit(3)
        case "silent":
            threading.Event().wait()
        case _:
            pass
    return max_tokens


def start() -> tuple[str, Work]:
    if manner == "never-ready":
        raise ImportError("no such engine")
    return "scripted 1.0", timed(run)


if manner == "babbles":
    sys.stdout.write("hello\n")
    sys.exit(0)
drive(start)
