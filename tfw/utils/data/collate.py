"""How samples become a batch: PyTorch's rules, with errors that name the element at fault."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, cast

import numpy as np

from tfw import dtypes
from tfw.errors import ArgumentError, ShapeError
from tfw.ops.data import as_tensor, from_numpy, tensor
from tfw.ops.join import stack
from tfw.tensor import Tensor

CollateMap = dict[Any, Callable[..., Any]]

TAKEN = "tensors, NumPy arrays, numbers, strings, bytes, mappings, sequences"


def default_convert(data: Any) -> Any:
    """Turn NumPy arrays and scalars inside one sample into tensors; leave the rest as it is.

    Containers keep their type, except that a plain tuple becomes a list.

    Shapes: unchanged.
    Dtypes: unchanged; arrays of text or objects stay arrays.
    Errors: none of its own.
    Source: elementary.
    Example: ``default_convert({"x": np.zeros(2)})["x"].shape``
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        value = cast("Any", data)
        return value if value.dtype.kind in "SUO" else as_tensor(value)
    if isinstance(data, Mapping):
        mapping = cast("Mapping[Any, Any]", data)
        return _like_mapping(mapping, {key: default_convert(mapping[key]) for key in mapping})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        sequence = cast("Sequence[Any]", data)
        return _like_sequence(sequence, [default_convert(d) for d in sequence])
    return data


def default_collate(batch: Any) -> Any:
    """Join samples into one batch.

    Tensors and NumPy arrays are stacked along a new first dim; Python floats become float64, ints
    int64; strings and bytes stay a list; mappings, named tuples and sequences are joined element by
    element, a plain tuple giving a list.

    Shapes: n samples (...) give (n, ...).
    Dtypes: the samples'.
    Errors: RuntimeError (ShapeError) for samples of unequal sizes, naming the element; TypeError
    for types that do not join.
    Source: elementary.
    Example: ``default_collate([{"x": 1}, {"x": 2}])  # {"x": tensor([1, 2])}``
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Join samples as `default_collate` does, with functions for further types.

    Args:
        batch: the samples.
        collate_fn_map: from a type, or a tuple of them, to ``f(samples, collate_fn_map=map)``.

    """
    return _collate(batch, collate_fn_map or {}, "")


def _collate(batch: Any, functions: CollateMap, path: str) -> Any:
    """Join the elements that lie at `path` within each sample."""
    if not len(batch):
        raise ArgumentError("the batch is empty", op="default_collate", argument="batch")
    first = batch[0]
    function = functions.get(type(first))
    if function is None:
        function = next((f for t, f in functions.items() if isinstance(first, t)), None)
    if function is not None:
        try:
            return function(batch, collate_fn_map=functions)
        except ShapeError as error:
            if error.op != "default_collate" or not path or error.argument != "batch":
                raise
            raise _ragged(f"{path}: {error.message}", error.value) from None
    if isinstance(first, Mapping):
        keys = cast("Mapping[Any, Any]", first)
        _check_keys(batch, keys, path)
        return _like_mapping(
            keys, {k: _collate([d[k] for d in batch], functions, f"{path}[{k!r}]") for k in keys}
        )
    if isinstance(first, Sequence):
        sequence = cast("Sequence[Any]", first)
        _check_lengths(batch, path)
        fields = getattr(sequence, "_fields", None)
        names = [f".{n}" for n in fields] if fields else [f"[{i}]" for i in range(len(sequence))]
        joined = [
            _collate(list(samples), functions, path + name)
            for name, samples in zip(names, zip(*batch, strict=True), strict=True)
        ]
        return _like_sequence(sequence, joined)
    raise _unknown(type(first).__name__, path)


def _like_mapping(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Return `items` as the type of `mapping`, with what else that object carries."""
    try:
        if isinstance(mapping, MutableMapping):
            clone = copy.copy(mapping)
            clone.update(items)
            return clone
        return cast("Any", type(mapping))(items)
    except TypeError:  # a type that cannot be copied, updated or made from a dict
        return items


def _like_sequence(sequence: Sequence[Any], items: list[Any]) -> Any:
    """Return `items` as the type of `sequence`; a plain tuple gives a list, as in PyTorch."""
    if isinstance(sequence, tuple):
        return cast("Any", type(sequence))(*items) if hasattr(sequence, "_fields") else items
    try:
        if isinstance(sequence, MutableSequence):
            clone = copy.copy(sequence)
            for i, item in enumerate(items):
                clone[i] = item
            return clone
        return cast("Any", type(sequence))(items)
    except TypeError:  # e.g. a range, which is not made from items
        return items


def _ragged(message: str, value: object) -> ShapeError:
    return ShapeError(
        message,
        op="default_collate",
        argument="batch",
        value=value,
        rule="samples of equal size",
        remedy="pad or cut them in the dataset, or pass a collate_fn",
    )


def _unknown(name: str, path: str) -> ArgumentError:
    return ArgumentError(
        f"{path or 'the batch'} holds {name}, which does not join into a batch",
        op="default_collate",
        argument="batch",
        value=name,
        rule=TAKEN,
        remedy="pass a collate_fn",
    )


def _check_keys(batch: Any, keys: Mapping[Any, Any], path: str) -> None:
    for i, sample in enumerate(batch):
        missing = [k for k in keys if k not in sample]
        if missing:
            raise KeyError(
                f"default_collate: sample {i} of the batch lacks key {path}[{missing[0]!r}], "
                "which sample 0 has"
            )


def _check_lengths(batch: Any, path: str) -> None:
    expected = len(batch[0])
    for i, sample in enumerate(batch):
        if len(sample) != expected:
            where = f"{path}: " if path else ""
            raise _ragged(
                f"{where}sample {i} of the batch has {len(sample)} elements, "
                f"sample 0 has {expected}",
                (expected, len(sample)),
            )


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Stack tensors of one shape."""
    expected = batch[0].shape
    for i, sample in enumerate(batch):
        if sample.shape != expected:
            raise _ragged(
                f"sample {i} of the batch has shape {tuple(sample.shape)}, "
                f"sample 0 has {tuple(expected)}",
                (tuple(expected), tuple(sample.shape)),
            )
    first = batch[0]
    if first.device.type != "cpu" or any(t.requires_grad for t in batch):
        return stack(batch)
    # Samples have no history to record, so the copy itself is all there is to do.
    arrays = [t.numpy() for t in batch]
    if any(a.dtype != arrays[0].dtype for a in arrays):
        return stack(batch)
    return from_numpy(np.stack(arrays))


def _collate_array(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise _unknown(f"a NumPy array of dtype {batch[0].dtype}", "")
    return collate([as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def _collate_scalar(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return as_tensor(np.asarray(batch))


def _collate_float(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return tensor(batch, dtype=dtypes.float64)


def _collate_int(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return tensor(batch)


def _collate_text(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    return batch


# Users may add their own types.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: _collate_array,
    (np.bool_, np.number): _collate_scalar,
    float: _collate_float,
    int: _collate_int,
    str: _collate_text,
    bytes: _collate_text,
}
