"""What `tfw doctor` looks at: each function examines one thing and returns its findings."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tfw import config
from tfw.errors import ConfigError

#: ok; absent: not there and not needed on a CPU; limited: something will not work; broken: the CPU
#: path itself does not work.
Status = Literal["ok", "absent", "limited", "broken"]

ARCHITECTURES = ("80", "90", "100")
_COMPILE_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do if it is not as it should be."""

    section: str
    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class _Package:
    name: str
    purpose: str
    without: Status


_ON_LINUX: Status = "limited" if sys.platform == "linux" else "absent"
_PACKAGES = (
    _Package("numpy", "computes on the CPU", "broken"),
    _Package("ml_dtypes", "bfloat16 and float8 on the CPU", "broken"),
    _Package("safetensors", "reads and writes checkpoints", "limited"),
    _Package("rich", "tables and live displays in the terminal", "limited"),
    _Package("triton", "compiles GPU kernels", _ON_LINUX),
    _Package("cuda-python", "talks to the NVIDIA driver", _ON_LINUX),
    _Package("nvidia-ml-py", "GPU temperature, power and load", "absent"),
    _Package("textual", "the full-screen view of a run", "absent"),
    _Package("nccl4py", "training on several GPUs", "absent"),
    _Package("mpi4py", "training on several machines", "absent"),
)


def examine() -> list[Finding]:
    """Return all findings in the order in which they are shown."""
    return [
        *_packages(),
        *_host_devices(),
        *_cuda_devices(),
        *_compiler(),
        *_caches(),
        *_variables(),
    ]


def installed(name: str) -> str | None:
    """Return the version of a distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Finding]:
    section = "packages"
    detail = f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"
    yield Finding(section, "python", "ok", detail)
    for package in _PACKAGES:
        version = installed(package.name)
        if version is not None:
            yield Finding(section, package.name, "ok", version)
            continue
        detail = f"not installed: {package.purpose}"
        remedy = f"pip install {package.name}"
        yield Finding(section, package.name, package.without, detail, remedy)


def _host_devices() -> Iterator[Finding]:
    section = "devices"
    try:
        works = _doubles("cpu")
    # Whatever goes wrong is the finding.
    except Exception as error:
        yield Finding(section, "cpu", "broken", _told(error), "reinstall: pip install -U tfw")
        return
    n_cpus = os.cpu_count()
    if works:
        yield Finding(section, "cpu", "ok", f"{platform.machine()}, {n_cpus} processors")
    else:
        remedy = "numpy computes wrongly on this processor: pip install -U numpy"
        yield Finding(section, "cpu", "broken", "1 + 1 is not 2", remedy)
    try:
        tfw: Any = importlib.import_module("tfw")
        tfw.zeros((2, 3), device="meta").sum()
    except Exception as error:
        yield Finding(section, "meta", "limited", _told(error), "reinstall: pip install -U tfw")
    else:
        yield Finding(section, "meta", "ok", "shapes without data")


def _doubles(device: str) -> bool:
    tfw: Any = importlib.import_module("tfw")
    one = tfw.ones((4,), device=device)
    return (one + one).tolist() == [2.0] * 4


def _cuda_devices() -> Iterator[Finding]:
    section = "devices"
    if installed("cuda-python") is None:
        yield Finding(section, "cuda", "absent", "cuda-python is not installed")
        return
    try:
        driver: Any = importlib.import_module("cuda.bindings.driver")
        result = driver.cuInit(0)[0]
    except Exception as error:
        # cuda.pathfinder raises its own class, which older releases do not have.
        if "NotFound" in type(error).__name__ or isinstance(error, ImportError):
            detail = "no NVIDIA driver on this machine (libcuda.so.1 not found)"
            yield Finding(section, "cuda", "absent", detail, "install the driver of your GPU")
        else:
            yield Finding(section, "cuda", "limited", f"the driver fails: {_told(error)}")
        return
    if result.name == "CUDA_ERROR_NO_DEVICE":
        yield Finding(section, "cuda", "absent", "NVIDIA driver found, but no GPU")
        return
    if result.value != 0:
        remedy = "run nvidia-smi: the driver may be older than its libraries, or not loaded"
        yield Finding(section, "cuda", "limited", f"cuInit fails: {result.name}", remedy)
        return
    number = driver.cuDriverGetVersion()[1]
    detail = f"driver for CUDA {number // 1000}.{number % 1000 // 10}"
    yield Finding(section, "cuda", "ok", detail)
    for index in range(driver.cuDeviceGetCount()[1]):
        yield _gpu(driver, index)


def _gpu(driver: Any, index: int) -> Finding:
    name = f"cuda:{index}"
    device = driver.cuDeviceGet(index)[1]
    attribute = driver.CUdevice_attribute
    major, minor = (
        driver.cuDeviceGetAttribute(which, device)[1]
        for which in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    model = driver.cuDeviceGetName(128, device)[1].split(b"\0")[0].decode(errors="replace")
    memory_gib = driver.cuDeviceTotalMem(device)[1] / 2**30
    detail = f"{model}, sm_{major}{minor}, {memory_gib:.0f} GiB"
    try:
        works = _doubles(name)
    except Exception as error:
        return Finding("devices", name, "limited", f"{detail}; tfw cannot use it: {_told(error)}")
    if not works:
        return Finding("devices", name, "limited", f"{detail}; computes 1 + 1 wrongly")
    return Finding("devices", name, "ok", detail)


def _compiler() -> Iterator[Finding]:
    section = "kernel compiler"
    if installed("triton") is None:
        yield Finding(section, "triton", "absent", "not installed: compiles GPU kernels")
        return
    # A fresh cache: what is asked is whether it can compile, and the home may be read-only.
    with tempfile.TemporaryDirectory(prefix="tfw-doctor-") as cache:
        try:
            probe = subprocess.run(
                [sys.executable, "-m", "tfw.cli.compile_probe", *ARCHITECTURES],
                env={**os.environ, "TRITON_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                timeout=_COMPILE_TIMEOUT_S,
                check=True,
            )
            outcomes: dict[str, dict[str, Any]] = json.loads(probe.stdout)
        except subprocess.TimeoutExpired:
            detail = f"no answer in {_COMPILE_TIMEOUT_S:.0f} s"
            yield Finding(section, "triton", "limited", detail)
            return
        except subprocess.CalledProcessError as error:
            last = (str(error.stderr).strip().splitlines() or [f"exit code {error.returncode}"])[-1]
            yield Finding(section, "triton", "limited", last, "pip install -U triton")
            return
    for name, outcome in outcomes.items():
        if outcome["ok"]:
            yield Finding(section, name, "ok", f"compiles without a GPU: {outcome['detail']}")
        else:
            yield Finding(section, name, "limited", outcome["detail"], "pip install -U triton")


def _caches() -> Iterator[Finding]:
    try:
        yield _cache("tfw", config.CACHE_DIR.get(), config.CACHE_DIR.name)
    except (ConfigError, RuntimeError) as error:
        remedy = f"set {config.CACHE_DIR.name} to a directory"
        yield Finding("caches", "tfw", "limited", _told(error), remedy)
    if installed("triton") is None:
        return
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    triton = os.environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache")
    yield _cache("triton", Path(triton), "TRITON_CACHE_DIR")


def _cache(name: str, path: Path, variable: str) -> Finding:
    if _writable(path):
        return Finding("caches", name, "ok", f"{path} ({_size(path)})")
    remedy = f"set {variable} to a directory that can be written"
    return Finding("caches", name, "limited", f"{path} cannot be written", remedy)


def _writable(path: Path) -> bool:
    # What does not exist yet can be made if the nearest directory above it can be written.
    while not path.exists() and path != path.parent:
        path = path.parent
    # Permission bits do not tell of read-only mounts and the like, so try it.
    try:
        with tempfile.TemporaryDirectory(dir=path, prefix="tfw-doctor-"):
            return True
    except OSError:
        return False


def _size(path: Path) -> str:
    if not path.exists():
        return "empty"
    n_files = n_bytes = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                n_bytes += os.stat(os.path.join(directory, name)).st_size
            except OSError:
                continue  # another process may just have removed it
            n_files += 1
    return f"{n_bytes / 1e6:.1f} MB in {n_files} files" if n_files else "empty"


def _variables() -> Iterator[Finding]:
    section = "environment variables"
    for variable in config.VARIABLES:
        origin = "set" if os.environ.get(variable.name) else "default"
        try:
            value = variable.get()
        except (ConfigError, RuntimeError) as error:
            remedy = error.remedy if isinstance(error, ConfigError) else ""
            yield Finding(section, variable.name, "broken", _told(error), remedy)
        else:
            detail = f"{value} ({origin}): {variable.meaning}"
            yield Finding(section, variable.name, "ok", detail)


def _told(error: BaseException) -> str:
    """Return an error in one line."""
    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, ConfigError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
