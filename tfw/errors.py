"""Error classes and the one form in which tfw tells what went wrong.

Every message names the op, the argument, its value and the rule, then a remedy if one is known::

    DimError: softmax: dim=2 is out of range for input of shape (4, 7)
      allowed: -2 <= dim <= 1

Each class derives from the type that PyTorch raises for the same fault, so `except` lines written
for PyTorch keep working, and carries the parts of its message as fields.
"""

from __future__ import annotations


class TfwError(Exception):
    """Base of all errors that tfw raises on purpose.

    Args:
        message: what is wrong, without the op's name.
        op: the op or object that refuses, e.g. ``"softmax"``.
        argument: the argument at fault, e.g. ``"dim"``.
        value: its value.
        rule: what is allowed; printed as ``allowed: ...``.
        remedy: what to do; printed as ``remedy: ...``.

    """

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        argument: str = "",
        value: object = None,
        rule: str = "",
        remedy: str = "",
    ) -> None:
        self.op, self.argument, self.value = op, argument, value
        self.rule, self.remedy = rule, remedy
        self.message = message
        lines = [f"{op}: {message}" if op else message]
        if rule:
            lines.append(f"  allowed: {rule}")
        if remedy:
            lines.append(f"  remedy: {remedy}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (loader workers): rebuild from fields, not from the text.
        return _rebuild, (type(self), self.message, dict(self.__dict__))


def _rebuild(cls: type[TfwError], message: str, fields: dict[str, object]) -> TfwError:
    names = ("op", "argument", "value", "rule", "remedy")
    error = cls(message, **{k: fields[k] for k in names})  # pyright: ignore[reportArgumentType]  fields come from __dict__
    error.__dict__.update(fields)
    return error


class ShapeError(TfwError, RuntimeError):
    """Shapes that do not fit each other or the op."""


class DtypeError(TfwError, RuntimeError):
    """A dtype that the op does not take, or dtypes that differ where they must not."""


class DeviceError(TfwError, RuntimeError):
    """Tensors on different devices, an unknown device, or one that is not there."""


class DimError(TfwError, IndexError):
    """A dimension number out of range or named twice."""


class OutOfRangeError(TfwError, IndexError):
    """An index past the end of what it indexes."""


class ArgumentError(TfwError, TypeError):
    """A missing, surplus or wrongly typed argument."""


class ValueRangeError(TfwError, ValueError):
    """A value outside the allowed range."""


class LayoutError(TfwError, RuntimeError):
    """Memory layout that forbids the operation: no view possible, overlapping writes."""


class AutogradError(TfwError, RuntimeError):
    """A gradient that cannot be computed: no graph, a freed graph, a leaf modified in place."""


class VersionError(AutogradError):
    """A tensor saved for backward was modified in place since."""


class AnomalyError(AutogradError):
    """NaN in a gradient, found by anomaly mode."""


class NoKernelError(TfwError, NotImplementedError):
    """An op has no way to run on this device."""


class CheckpointError(TfwError, RuntimeError):
    """A file that is not a checkpoint, is cut, forged or of a newer version."""


class StateDictError(TfwError, RuntimeError):
    """Keys or shapes of a state_dict that do not fit the module or optimizer."""


class LoaderError(TfwError, RuntimeError):
    """A data loader's worker that died or failed."""


class ConfigError(TfwError, ValueError):
    """An environment variable or option with a value that cannot be used."""


class CompileError(TfwError, RuntimeError):
    """A kernel that does not compile or passes the limits of its chip."""
