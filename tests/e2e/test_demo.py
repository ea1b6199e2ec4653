"""`evenflow demo` as it is started by a person, and interrupted by one."""

import re
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.model, pytest.mark.slow]

COMMAND = (sys.executable, "-m", "evenflow", "demo")


def test_an_interrupted_demo_says_what_was_cut_and_sums_up_the_rest() -> None:
    with subprocess.Popen(
        [*COMMAND, "--rate-scale", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stderr is not None
        lines = []
        for line in demo.stderr:
            lines.append(line)
            if "done" in line and "to come" in line:
                demo.send_signal(signal.SIGINT)
                break
        out, rest = demo.communicate()
    assert demo.returncode == 130, rest
    assert "Traceback" not in rest
    assert lines[0].startswith("starting a server on ")
    assert re.match(r" +\d+ s: (\d+ [a-z ]+, )*\d+ [a-z]+$", lines[-1])
    ends = re.search(r"^(\d+) of 40 requests finished in .*\n(.*)$", out, re.MULTILINE)
    assert ends is not None
    assert int(ends[1]) >= 1
    cut_and_unsent = {what: int(count) for count, what in re.findall(r"(\d+) (cut off|never sent)", ends[2])}
    assert cut_and_unsent["never sent"] >= 1
    assert int(ends[1]) + sum(cut_and_unsent.values()) == 40
    assert re.search(r"^time to first token \(TTFT\) ", out, re.MULTILINE)
    assert re.search(r"^\d+ iterations: ", out, re.MULTILINE)


def test_a_demo_that_runs_to_its_end_has_answered_everything() -> None:
    demo = subprocess.run([*COMMAND, "--requests", "5"], capture_output=True, text=True)
    assert demo.returncode == 0, demo.stderr
    assert "5 of 5 requests finished in " in demo.stdout
