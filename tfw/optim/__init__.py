"""Optimizers and learning-rate schedules; names and behaviour are PyTorch's."""

from tfw.optim import lr_scheduler as lr_scheduler
from tfw.optim.adam import Adam as Adam
from tfw.optim.adam import AdamW as AdamW
from tfw.optim.optimizer import Optimizer as Optimizer
from tfw.optim.sgd import SGD as SGD
