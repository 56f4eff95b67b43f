"""Activation recomputation: what is kept, what is dropped and computed again, within a byte budget.

The names below are imported on first use; importing this package imports no framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# public name -> the module here that defines it; this table is the whole front door
_HOMES = {
    "CheckpointManager": "manager",
    "MemoryStats": "memory",
    "LayerMemoryStats": "memory",
    "MemoryEvent": "memory",
    "MemoryLimitEvent": "memory",
    "MemoryTracker": "tracker",
    "CheckpointConfig": "config",
    "CheckpointConfigBuilder": "config",
    "CheckpointStrategy": "config",
    "CheckpointStrategyProtocol": "strategies",
    "CheckpointStrategyBase": "strategies",
    "IntervalStrategy": "strategies",
    "SelectiveStrategy": "strategies",
    "SizeBasedStrategy": "strategies",
    "MemoryAwareStrategy": "strategies",
    "SmartStrategy": "strategies",
    "create_strategy": "strategies",
    "create_interval": "strategies",
    "create_selective": "strategies",
    "create_size_based": "strategies",
    "create_memory_aware": "strategies",
    "create_smart": "strategies",
    "RecomputationEngine": "engine",
    "RecomputationStats": "engine",
    "LayerRecomputationStats": "engine",
    "RecomputationEvent": "engine",
    "Recomputer": "recomputer",
    "RecomputationStrategy": "rerun",
    "ExactReplay": "rerun",
    "DirectCall": "rerun",
    "DependencyGraph": "graph",
    "AsyncRecomputationEngine": "async_engine",
    "RecomputationHandle": "async_engine",
    "cancellation_requested": "async_engine",
    "RecomputationCache": "cache",
    "CacheStats": "cache",
    "CachePolicy": "policies",
    "LRUPolicy": "policies",
    "LFUPolicy": "policies",
    "CostAwarePolicy": "policies",
    "ActivationStore": "stores",
    "ActivationSlot": "stores",
    "MemoryStore": "stores",
    "DeviceStore": "stores",
    "DiskStore": "spill",
    "Signal": "signals",
    "RecomputationException": "errors",
    "RecomputationCancelled": "errors",
    "DependencyCycle": "errors",
    "ClosedError": "errors",
    "LayerExists": "errors",
    "LayerIdInvalid": "errors",
    "LayerNotFound": "errors",
    "ActivationInvalid": "errors",
    "SettingInvalid": "errors",
    "SpillDamaged": "errors",
    "auto_checkpoint": "autocheckpoint",
    "Profile": "autocheckpoint",
    "Plan": "plan",
    "Pareto": "picture",
    "ParetoRow": "picture",
    "is_recomputing": "recomputing",
    "Determinism": "determinism",
    "PeakTracker": "peak",
    "measure_peak": "peak",
    "RecomputeStatistics": "statistics",
    "Chain": "planner",
    "Stage": "planner",
    "Mode": "planner",
    "Table": "planner",
    "Keep": "schedule",
    "Region": "schedule",
    "BudgetTooSmall": "auto_errors",
    "RecomputeDiverged": "auto_errors",
    "ValueChanged": "auto_errors",
    "ModelRefused": "auto_errors",
    "PlanMismatch": "auto_errors",
    "AutoCheckpointWarning": "auto_errors",
}

__all__ = [*_HOMES]  # the table above is the list

if TYPE_CHECKING:
    from model_checkpoint.recompute.async_engine import AsyncRecomputationEngine as AsyncRecomputationEngine
    from model_checkpoint.recompute.async_engine import RecomputationHandle as RecomputationHandle
    from model_checkpoint.recompute.async_engine import cancellation_requested as cancellation_requested
    from model_checkpoint.recompute.auto_errors import AutoCheckpointWarning as AutoCheckpointWarning
    from model_checkpoint.recompute.auto_errors import BudgetTooSmall as BudgetTooSmall
    from model_checkpoint.recompute.auto_errors import ModelRefused as ModelRefused
    from model_checkpoint.recompute.auto_errors import PlanMismatch as PlanMismatch
    from model_checkpoint.recompute.auto_errors import RecomputeDiverged as RecomputeDiverged
    from model_checkpoint.recompute.auto_errors import ValueChanged as ValueChanged
    from model_checkpoint.recompute.autocheckpoint import Profile as Profile
    from model_checkpoint.recompute.autocheckpoint import auto_checkpoint as auto_checkpoint
    from model_checkpoint.recompute.cache import CacheStats as CacheStats
    from model_checkpoint.recompute.cache import RecomputationCache as RecomputationCache
    from model_checkpoint.recompute.config import CheckpointConfig as CheckpointConfig
    from model_checkpoint.recompute.config import CheckpointConfigBuilder as CheckpointConfigBuilder
    from model_checkpoint.recompute.config import CheckpointStrategy as CheckpointStrategy
    from model_checkpoint.recompute.determinism import Determinism as Determinism
    from model_checkpoint.recompute.engine import LayerRecomputationStats as LayerRecomputationStats
    from model_checkpoint.recompute.engine import RecomputationEngine as RecomputationEngine
    from model_checkpoint.recompute.engine import RecomputationEvent as RecomputationEvent
    from model_checkpoint.recompute.engine import RecomputationStats as RecomputationStats
    from model_checkpoint.recompute.errors import ActivationInvalid as ActivationInvalid
    from model_checkpoint.recompute.errors import ClosedError as ClosedError
    from model_checkpoint.recompute.errors import DependencyCycle as DependencyCycle
    from model_checkpoint.recompute.errors import LayerExists as LayerExists
    from model_checkpoint.recompute.errors import LayerIdInvalid as LayerIdInvalid
    from model_checkpoint.recompute.errors import LayerNotFound as LayerNotFound
    from model_checkpoint.recompute.errors import RecomputationCancelled as RecomputationCancelled
    from model_checkpoint.recompute.errors import RecomputationException as RecomputationException
    from model_checkpoint.recompute.errors import SettingInvalid as SettingInvalid
    from model_checkpoint.recompute.errors import SpillDamaged as SpillDamaged
    from model_checkpoint.recompute.graph import DependencyGraph as DependencyGraph
    from model_checkpoint.recompute.manager import CheckpointManager as CheckpointManager
    from model_checkpoint.recompute.memory import LayerMemoryStats as LayerMemoryStats
    from model_checkpoint.recompute.memory import MemoryEvent as MemoryEvent
    from model_checkpoint.recompute.memory import MemoryLimitEvent as MemoryLimitEvent
    from model_checkpoint.recompute.memory import MemoryStats as MemoryStats
    from model_checkpoint.recompute.peak import PeakTracker as PeakTracker
    from model_checkpoint.recompute.peak import measure_peak as measure_peak
    from model_checkpoint.recompute.picture import Pareto as Pareto
    from model_checkpoint.recompute.picture import ParetoRow as ParetoRow
    from model_checkpoint.recompute.plan import Plan as Plan
    from model_checkpoint.recompute.planner import Chain as Chain
    from model_checkpoint.recompute.planner import Mode as Mode
    from model_checkpoint.recompute.planner import Stage as Stage
    from model_checkpoint.recompute.planner import Table as Table
    from model_checkpoint.recompute.policies import CachePolicy as CachePolicy
    from model_checkpoint.recompute.policies import CostAwarePolicy as CostAwarePolicy
    from model_checkpoint.recompute.policies import LFUPolicy as LFUPolicy
    from model_checkpoint.recompute.policies import LRUPolicy as LRUPolicy
    from model_checkpoint.recompute.recomputer import Recomputer as Recomputer
    from model_checkpoint.recompute.recomputing import is_recomputing as is_recomputing
    from model_checkpoint.recompute.rerun import DirectCall as DirectCall
    from model_checkpoint.recompute.rerun import ExactReplay as ExactReplay
    from model_checkpoint.recompute.rerun import RecomputationStrategy as RecomputationStrategy
    from model_checkpoint.recompute.schedule import Keep as Keep
    from model_checkpoint.recompute.schedule import Region as Region
    from model_checkpoint.recompute.signals import Signal as Signal
    from model_checkpoint.recompute.spill import DiskStore as DiskStore
    from model_checkpoint.recompute.statistics import RecomputeStatistics as RecomputeStatistics
    from model_checkpoint.recompute.stores import ActivationSlot as ActivationSlot
    from model_checkpoint.recompute.stores import ActivationStore as ActivationStore
    from model_checkpoint.recompute.stores import DeviceStore as DeviceStore
    from model_checkpoint.recompute.stores import MemoryStore as MemoryStore
    from model_checkpoint.recompute.strategies import CheckpointStrategyBase as CheckpointStrategyBase
    from model_checkpoint.recompute.strategies import CheckpointStrategyProtocol as CheckpointStrategyProtocol
    from model_checkpoint.recompute.strategies import IntervalStrategy as IntervalStrategy
    from model_checkpoint.recompute.strategies import MemoryAwareStrategy as MemoryAwareStrategy
    from model_checkpoint.recompute.strategies import SelectiveStrategy as SelectiveStrategy
    from model_checkpoint.recompute.strategies import SizeBasedStrategy as SizeBasedStrategy
    from model_checkpoint.recompute.strategies import SmartStrategy as SmartStrategy
    from model_checkpoint.recompute.strategies import create_interval as create_interval
    from model_checkpoint.recompute.strategies import create_memory_aware as create_memory_aware
    from model_checkpoint.recompute.strategies import create_selective as create_selective
    from model_checkpoint.recompute.strategies import create_size_based as create_size_based
    from model_checkpoint.recompute.strategies import create_smart as create_smart
    from model_checkpoint.recompute.strategies import create_strategy as create_strategy
    from model_checkpoint.recompute.tracker import MemoryTracker as MemoryTracker


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
