"""Where memory lives and work runs. The CPU and meta backends are there from the start."""

from tfw.runtime import meta as _meta  # noqa: F401  registers itself
from tfw.runtime.cpu import backend as _cpu  # noqa: F401  registers itself
