"""Layers, containers, losses and their parameters; names and behaviour are PyTorch's."""

from tfw.nn import functional as functional
from tfw.nn import init as init
from tfw.nn import utils as utils
from tfw.nn.activation import GELU as GELU
from tfw.nn.activation import LogSoftmax as LogSoftmax
from tfw.nn.activation import ReLU as ReLU
from tfw.nn.activation import Softmax as Softmax
from tfw.nn.activation import Tanh as Tanh
from tfw.nn.containers import ModuleDict as ModuleDict
from tfw.nn.containers import ModuleList as ModuleList
from tfw.nn.containers import Sequential as Sequential
from tfw.nn.dropout import Dropout as Dropout
from tfw.nn.embedding import Embedding as Embedding
from tfw.nn.linear import Identity as Identity
from tfw.nn.linear import Linear as Linear
from tfw.nn.loss import CrossEntropyLoss as CrossEntropyLoss
from tfw.nn.loss import MSELoss as MSELoss
from tfw.nn.module import Module as Module
from tfw.nn.normalization import LayerNorm as LayerNorm
from tfw.nn.parameter import Buffer as Buffer
from tfw.nn.parameter import Parameter as Parameter
from tfw.nn.parameter_containers import ParameterDict as ParameterDict
from tfw.nn.parameter_containers import ParameterList as ParameterList
