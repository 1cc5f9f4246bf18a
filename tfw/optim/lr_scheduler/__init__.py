"""Learning-rate schedules; names and behaviour are PyTorch's."""

from tfw.optim.lr_scheduler.base import LRScheduler as LRScheduler
from tfw.optim.lr_scheduler.combined import ChainedScheduler as ChainedScheduler
from tfw.optim.lr_scheduler.combined import SequentialLR as SequentialLR
from tfw.optim.lr_scheduler.cosine import CosineAnnealingLR as CosineAnnealingLR
from tfw.optim.lr_scheduler.cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from tfw.optim.lr_scheduler.factors import ConstantLR as ConstantLR
from tfw.optim.lr_scheduler.factors import ExponentialLR as ExponentialLR
from tfw.optim.lr_scheduler.factors import LambdaLR as LambdaLR
from tfw.optim.lr_scheduler.factors import LinearLR as LinearLR
from tfw.optim.lr_scheduler.factors import MultiplicativeLR as MultiplicativeLR
from tfw.optim.lr_scheduler.factors import MultiStepLR as MultiStepLR
from tfw.optim.lr_scheduler.factors import StepLR as StepLR
from tfw.optim.lr_scheduler.one_cycle import OneCycleLR as OneCycleLR
from tfw.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
