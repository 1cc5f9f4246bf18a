"""tfw: a deep-learning framework with PyTorch's names, whose GPU compute is Triton kernels."""

import importlib
from typing import TYPE_CHECKING, Any

from tfw import autograd as autograd
from tfw.autograd.modes import enable_grad as enable_grad
from tfw.autograd.modes import inference_mode as inference_mode
from tfw.autograd.modes import is_anomaly_enabled as is_anomaly_enabled
from tfw.autograd.modes import is_grad_enabled as is_grad_enabled
from tfw.autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
from tfw.autograd.modes import no_grad as no_grad
from tfw.autograd.modes import set_grad_enabled as set_grad_enabled
from tfw.dtypes import bfloat16 as bfloat16
from tfw.dtypes import bool_ as bool_
from tfw.dtypes import can_cast as can_cast
from tfw.dtypes import complex64 as complex64
from tfw.dtypes import complex128 as complex128
from tfw.dtypes import dtype as dtype
from tfw.dtypes import finfo as finfo
from tfw.dtypes import float8_e4m3fn as float8_e4m3fn
from tfw.dtypes import float8_e5m2 as float8_e5m2
from tfw.dtypes import float16 as float16
from tfw.dtypes import float32 as float32
from tfw.dtypes import float64 as float64
from tfw.dtypes import get_default_dtype as get_default_dtype
from tfw.dtypes import iinfo as iinfo
from tfw.dtypes import int8 as int8
from tfw.dtypes import int16 as int16
from tfw.dtypes import int32 as int32
from tfw.dtypes import int64 as int64
from tfw.dtypes import promote_types as promote_types
from tfw.dtypes import set_default_dtype as set_default_dtype
from tfw.dtypes import uint8 as uint8
from tfw.ops.activation import erf as erf
from tfw.ops.compare import bitwise_and as bitwise_and
from tfw.ops.compare import bitwise_not as bitwise_not
from tfw.ops.compare import bitwise_or as bitwise_or
from tfw.ops.compare import bitwise_xor as bitwise_xor
from tfw.ops.compare import eq as eq
from tfw.ops.compare import ge as ge
from tfw.ops.compare import gt as gt
from tfw.ops.compare import le as le
from tfw.ops.compare import logical_and as logical_and
from tfw.ops.compare import logical_not as logical_not
from tfw.ops.compare import lt as lt
from tfw.ops.compare import ne as ne
from tfw.ops.compare import where as where
from tfw.ops.convert import clone as clone
from tfw.ops.creation import arange as arange
from tfw.ops.creation import empty as empty
from tfw.ops.creation import empty_like as empty_like
from tfw.ops.creation import eye as eye
from tfw.ops.creation import full as full
from tfw.ops.creation import full_like as full_like
from tfw.ops.creation import get_default_device as get_default_device
from tfw.ops.creation import linspace as linspace
from tfw.ops.creation import ones as ones
from tfw.ops.creation import ones_like as ones_like
from tfw.ops.creation import set_default_device as set_default_device
from tfw.ops.creation import zeros as zeros
from tfw.ops.creation import zeros_like as zeros_like
from tfw.ops.data import as_tensor as as_tensor
from tfw.ops.data import asarray as asarray
from tfw.ops.data import from_numpy as from_numpy
from tfw.ops.data import tensor as tensor
from tfw.ops.dropout import dropout as dropout
from tfw.ops.elementwise import abs as abs
from tfw.ops.elementwise import add as add
from tfw.ops.elementwise import div as div
from tfw.ops.elementwise import exp as exp
from tfw.ops.elementwise import log as log
from tfw.ops.elementwise import maximum as maximum
from tfw.ops.elementwise import minimum as minimum
from tfw.ops.elementwise import mul as mul
from tfw.ops.elementwise import neg as neg
from tfw.ops.elementwise import pow as pow
from tfw.ops.elementwise import relu as relu
from tfw.ops.elementwise import sign as sign
from tfw.ops.elementwise import sqrt as sqrt
from tfw.ops.elementwise import sub as sub
from tfw.ops.elementwise import tanh as tanh
from tfw.ops.expand import squeeze as squeeze
from tfw.ops.expand import unsqueeze as unsqueeze
from tfw.ops.extreme import amax as amax
from tfw.ops.extreme import amin as amin
from tfw.ops.extreme import argmax as argmax
from tfw.ops.extreme import argmin as argmin
from tfw.ops.extreme import max as max
from tfw.ops.extreme import min as min
from tfw.ops.generator import Generator as Generator
from tfw.ops.generator import default_generator as default_generator
from tfw.ops.generator import get_rng_state as get_rng_state
from tfw.ops.generator import initial_seed as initial_seed
from tfw.ops.generator import manual_seed as manual_seed
from tfw.ops.generator import seed as seed
from tfw.ops.generator import set_rng_state as set_rng_state
from tfw.ops.join import cat as cat
from tfw.ops.join import stack as stack
from tfw.ops.mask import masked_fill as masked_fill
from tfw.ops.mask import tril as tril
from tfw.ops.mask import triu as triu
from tfw.ops.matmul import bmm as bmm
from tfw.ops.matmul import matmul as matmul
from tfw.ops.matmul import mm as mm
from tfw.ops.methods import attach as _attach
from tfw.ops.movement import flatten as flatten
from tfw.ops.movement import permute as permute
from tfw.ops.movement import reshape as reshape
from tfw.ops.movement import t as t
from tfw.ops.movement import transpose as transpose
from tfw.ops.nonzero import nonzero as nonzero
from tfw.ops.parts import chunk as chunk
from tfw.ops.parts import split as split
from tfw.ops.random import bernoulli as bernoulli
from tfw.ops.random import multinomial as multinomial
from tfw.ops.random import rand as rand
from tfw.ops.random import rand_like as rand_like
from tfw.ops.random import randint as randint
from tfw.ops.random import randn as randn
from tfw.ops.random import randn_like as randn_like
from tfw.ops.random import randperm as randperm
from tfw.ops.reduce import all as all
from tfw.ops.reduce import any as any
from tfw.ops.reduce import mean as mean
from tfw.ops.reduce import sum as sum
from tfw.ops.softmax import log_softmax as log_softmax
from tfw.ops.softmax import softmax as softmax
from tfw.ops.sort import argsort as argsort
from tfw.ops.sort import sort as sort
from tfw.ops.sort import topk as topk
from tfw.registry import op as op
from tfw.registry import primitive as primitive
from tfw.runtime.cpu.threads import get_num_threads as get_num_threads
from tfw.runtime.cpu.threads import set_num_threads as set_num_threads
from tfw.shapes import Size as Size
from tfw.shapes import device as device
from tfw.tensor import Tensor as Tensor
from tfw.tensor import is_tensor as is_tensor

__version__ = "0.1.0"

_attach()

# PyTorch's second names. `bool`, `float` and `int` are dtypes here, as they are in PyTorch.
bool = bool_
cfloat = complex64
cdouble = complex128
half = float16
float = float32
double = float64
short = int16
int = int32
long = int64
divide = div
true_divide = div
greater_equal = ge
greater = gt
less_equal = le
less = lt
multiply = mul
not_equal = ne
negative = neg
subtract = sub
concat = cat
concatenate = cat

if TYPE_CHECKING:
    from tfw import nn as nn
    from tfw import optim as optim
    from tfw import utils as utils
    from tfw.printing import set_printoptions as set_printoptions
    from tfw.serialization import load as load
    from tfw.serialization import save as save

# Loaded when first used, since a script needs only some of them: module, or (module, name) to take
# from it.
_LATER = {
    "nn": "tfw.nn",
    "optim": "tfw.optim",
    "utils": "tfw.utils",
    "load": ("tfw.serialization", "load"),
    "save": ("tfw.serialization", "save"),
    "set_printoptions": ("tfw.printing", "set_printoptions"),
}


def __getattr__(name: str) -> Any:
    where = _LATER.get(name)
    if where is None:
        raise AttributeError(f"module 'tfw' has no attribute {name!r}")
    if isinstance(where, str):
        value = importlib.import_module(where)
    else:
        value = getattr(importlib.import_module(where[0]), where[1])
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *_LATER})
