"""Environment variables: defaults, what they accept, and what they say when they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfw import config
from tfw.errors import ConfigError


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for variable in config.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def test_cache_follows_xdg(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert config.CACHE_DIR.get() == Path("/home/someone/.cache/tfw")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert config.CACHE_DIR.get() == Path("/var/cache/someone/tfw")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert config.CACHE_DIR.get() == Path("/home/someone/.cache/tfw")


def test_cache_named_by_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("TFW_CACHE_DIR", "~/kernels")
    assert config.CACHE_DIR.get() == Path("/home/someone/kernels")


def test_threads(monkeypatch):
    assert config.NUM_THREADS.get() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("TFW_NUM_THREADS", "3")
    assert config.NUM_THREADS.get() == 3
    monkeypatch.setenv("TFW_NUM_THREADS", "")
    assert config.NUM_THREADS.get() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many"])
def test_threads_rejects(monkeypatch, text):
    monkeypatch.setenv("TFW_NUM_THREADS", text)
    with pytest.raises(ConfigError) as caught:
        config.NUM_THREADS.get()
    assert caught.value.op == "TFW_NUM_THREADS"
    assert caught.value.value == text
    assert "a whole number of 1 or more" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("on", True), ("No", False)])
def test_anomaly(monkeypatch, text, value):
    assert config.ANOMALY.get() is False
    monkeypatch.setenv("TFW_ANOMALY", text)
    assert config.ANOMALY.get() is value


def test_anomaly_rejects(monkeypatch):
    monkeypatch.setenv("TFW_ANOMALY", "maybe")
    with pytest.raises(ConfigError, match="TFW_ANOMALY: 'maybe' cannot be used"):
        config.ANOMALY.get()


def test_no_color_takes_any_text(monkeypatch):
    assert config.NO_COLOR.get() is False
    monkeypatch.setenv("NO_COLOR", "0")  # no-color.org: present and not empty, whatever it is
    assert config.NO_COLOR.get() is True


def test_table_is_complete():
    names = {variable.name for variable in config.VARIABLES}
    for path in Path(config.__file__).parent.rglob("*.py"):
        mentioned = set(re.findall(r"\bTFW_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert mentioned <= names, path


def test_import_does_not_read_the_environment():
    code = "import tfw.config"
    environment = {**os.environ, "TFW_ANOMALY": "maybe", "TFW_CACHE_DIR": "/nowhere"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
