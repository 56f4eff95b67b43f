"""Mixed precision: train in 16 bits over FP32 masters, clip and skip correctly, and resume bit for bit."""

from __future__ import annotations

from model_checkpoint.precision.checkpoint import MixedPrecisionCheckpoint
from model_checkpoint.precision.checkpointing import MixedPrecisionCheckpointManager
from model_checkpoint.precision.exclusions import PrecisionManager
from model_checkpoint.precision.gradients import GradientConversionLayer
from model_checkpoint.precision.hardware import HardwareDetector, PrecisionCapability
from model_checkpoint.precision.importers import ImportedScaler, import_scaler_state
from model_checkpoint.precision.kinds import Precision, PrecisionConverter
from model_checkpoint.precision.monitor import PerformanceMonitor, PerformanceStats
from model_checkpoint.precision.optimizer import MixedPrecisionOptimizer
from model_checkpoint.precision.options import HysteresisRefill, MixedPrecisionOptions
from model_checkpoint.precision.preflight import PrecisionChange, check_precision_change
from model_checkpoint.precision.results import MixedPrecisionOptimizerStats, StepReason, StepResult
from model_checkpoint.precision.scaler import DynamicLossScaler, LossScalerStats, ScalerState
from model_checkpoint.precision.soundness import Finding, Severity
from model_checkpoint.precision.timeline import ScaleEvent, ScaleTimeline
from model_checkpoint.precision.weights import StoredWeight
from model_checkpoint.precision.wire import from_tree, to_tree

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
