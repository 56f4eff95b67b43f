"""Mixed precision: train in 16 bits over FP32 masters, clip and skip correctly, and resume bit for bit.

optimizer      any dense torch optimizer, trained in 16 bits over FP32 masters.
settings       what can be chosen, and what this machine can do.
parameters     half weights beside their FP32 masters.
gradients      judged, unscaled and clipped.
scaling        the loss scale, its history, and the way to FP32 and back.
stepping       one optimizer step, from verdict to weights.
checkpoints    all of a mixed-precision run as one value: captured, checked, written, restored.
checkpointing  create, save, load, restore and inspect checkpoints of mixed-precision runs.
errors         each derives from the one tree and from the builtin its callers expect.
"""

from __future__ import annotations

from model_checkpoint.precision.checkpointing import MixedPrecisionCheckpointManager
from model_checkpoint.precision.checkpoints.checkpoint import MixedPrecisionCheckpoint
from model_checkpoint.precision.checkpoints.preflight import PrecisionChange, check_precision_change
from model_checkpoint.precision.checkpoints.self_check import Finding, Severity
from model_checkpoint.precision.checkpoints.tree_codec import from_tree, to_tree
from model_checkpoint.precision.checkpoints.weights import StoredWeight
from model_checkpoint.precision.gradients.conversion import GradientConversionLayer
from model_checkpoint.precision.optimizer import MixedPrecisionOptimizer
from model_checkpoint.precision.scaling.importers import ImportedScaler, import_scaler_state
from model_checkpoint.precision.scaling.scaler import DynamicLossScaler, LossScalerStats, ScalerState
from model_checkpoint.precision.scaling.timeline import ScaleEvent, ScaleTimeline
from model_checkpoint.precision.settings.hardware import HardwareDetector, PrecisionCapability
from model_checkpoint.precision.settings.number_formats import Precision, PrecisionConverter
from model_checkpoint.precision.settings.precision_manager import PrecisionManager
from model_checkpoint.precision.settings.precision_options import HysteresisRefill, MixedPrecisionOptions
from model_checkpoint.precision.stepping.monitor import PerformanceMonitor, PerformanceStats
from model_checkpoint.precision.stepping.results import MixedPrecisionOptimizerStats, StepReason, StepResult

__all__ = [
    "MixedPrecisionOptimizer",
    "MixedPrecisionOptions",
    "MixedPrecisionOptimizerStats",
    "StepResult",
    "StepReason",
    "MixedPrecisionCheckpointManager",
    "MixedPrecisionCheckpoint",
    "StoredWeight",
    "Finding",
    "Severity",
    "to_tree",
    "from_tree",
    "DynamicLossScaler",
    "LossScalerStats",
    "ScalerState",
    "HysteresisRefill",
    "ImportedScaler",
    "import_scaler_state",
    "ScaleTimeline",
    "ScaleEvent",
    "Precision",
    "PrecisionConverter",
    "PrecisionManager",
    "PrecisionChange",
    "check_precision_change",
    "HardwareDetector",
    "PrecisionCapability",
    "GradientConversionLayer",
    "PerformanceMonitor",
    "PerformanceStats",
]
