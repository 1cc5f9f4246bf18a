"""Where memory lives and work runs. The CPU and meta backends are there from the start."""

from tfw.runtime.backend import register as _register
from tfw.runtime.cpu.backend import cpu as _cpu
from tfw.runtime.meta import meta as _meta

_register(_cpu)
_register(_meta)
