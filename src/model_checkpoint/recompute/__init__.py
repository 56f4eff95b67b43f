"""Activation recomputation: what is kept, what is dropped and computed again, within a byte budget.

The names below are imported on first use; importing this package imports no framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# public name -> the module here that defines it; this table is the whole front door
_HOMES = {
    "CheckpointManager": "manager",
    "MemoryStats": "activations.memory_stats",
    "LayerMemoryStats": "activations.memory_stats",
    "MemoryEvent": "activations.memory_stats",
    "MemoryLimitEvent": "activations.memory_stats",
    "MemoryTracker": "activations.tracker",
    "CheckpointConfig": "activations.config",
    "CheckpointConfigBuilder": "activations.config",
    "CheckpointStrategy": "activations.config",
    "CheckpointStrategyProtocol": "activations.strategies",
    "CheckpointStrategyBase": "activations.strategies",
    "IntervalStrategy": "activations.strategies",
    "SelectiveStrategy": "activations.strategies",
    "SizeBasedStrategy": "activations.strategies",
    "MemoryAwareStrategy": "activations.strategies",
    "SmartStrategy": "activations.strategies",
    "create_strategy": "activations.strategies",
    "create_interval": "activations.strategies",
    "create_selective": "activations.strategies",
    "create_size_based": "activations.strategies",
    "create_memory_aware": "activations.strategies",
    "create_smart": "activations.strategies",
    "RecomputationEngine": "functions.recomputation_engine",
    "RecomputationStats": "functions.recomputation_engine",
    "LayerRecomputationStats": "functions.recomputation_engine",
    "RecomputationEvent": "functions.recomputation_engine",
    "Recomputer": "functions.recomputer",
    "RecomputationStrategy": "functions.replay_strategy",
    "ExactReplay": "functions.replay_strategy",
    "DirectCall": "functions.replay_strategy",
    "DependencyGraph": "functions.graph",
    "AsyncRecomputationEngine": "functions.async_recomputation",
    "RecomputationHandle": "functions.async_recomputation",
    "cancellation_requested": "functions.async_recomputation",
    "RecomputationCache": "activations.cache",
    "CacheStats": "activations.cache",
    "CachePolicy": "activations.policies",
    "LRUPolicy": "activations.policies",
    "LFUPolicy": "activations.policies",
    "CostAwarePolicy": "activations.policies",
    "ActivationStore": "activations.stores",
    "ActivationSlot": "activations.stores",
    "MemoryStore": "activations.stores",
    "DeviceStore": "activations.stores",
    "DiskStore": "activations.spill",
    "Signal": "activations.signals",
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
    "auto_checkpoint": "auto.autocheckpoint",
    "Profile": "auto.autocheckpoint",
    "Plan": "auto.planning.plan",
    "Pareto": "auto.planning.pareto",
    "ParetoRow": "auto.planning.pareto",
    "is_recomputing": "auto.running.region_frame",
    "Determinism": "auto.common.determinism",
    "PeakTracker": "auto.common.peak",
    "measure_peak": "auto.common.peak",
    "RecomputeStatistics": "auto.common.statistics",
    "Chain": "auto.planning.planner",
    "Stage": "auto.planning.planner",
    "Mode": "auto.planning.planner",
    "Table": "auto.planning.planner",
    "Keep": "auto.planning.schedule",
    "Region": "auto.planning.schedule",
    "BudgetTooSmall": "auto.common.errors",
    "RecomputeDiverged": "auto.common.errors",
    "ValueChanged": "auto.common.errors",
    "ModelRefused": "auto.common.errors",
    "PlanMismatch": "auto.common.errors",
    "AutoCheckpointWarning": "auto.common.errors",
}

__all__ = [*_HOMES]  # the table above is the list

if TYPE_CHECKING:
    from model_checkpoint.recompute.activations.cache import CacheStats as CacheStats
    from model_checkpoint.recompute.activations.cache import RecomputationCache as RecomputationCache
    from model_checkpoint.recompute.activations.config import CheckpointConfig as CheckpointConfig
    from model_checkpoint.recompute.activations.config import CheckpointConfigBuilder as CheckpointConfigBuilder
    from model_checkpoint.recompute.activations.config import CheckpointStrategy as CheckpointStrategy
    from model_checkpoint.recompute.activations.memory_stats import LayerMemoryStats as LayerMemoryStats
    from model_checkpoint.recompute.activations.memory_stats import MemoryEvent as MemoryEvent
    from model_checkpoint.recompute.activations.memory_stats import MemoryLimitEvent as MemoryLimitEvent
    from model_checkpoint.recompute.activations.memory_stats import MemoryStats as MemoryStats
    from model_checkpoint.recompute.activations.policies import CachePolicy as CachePolicy
    from model_checkpoint.recompute.activations.policies import CostAwarePolicy as CostAwarePolicy
    from model_checkpoint.recompute.activations.policies import LFUPolicy as LFUPolicy
    from model_checkpoint.recompute.activations.policies import LRUPolicy as LRUPolicy
    from model_checkpoint.recompute.activations.signals import Signal as Signal
    from model_checkpoint.recompute.activations.spill import DiskStore as DiskStore
    from model_checkpoint.recompute.activations.stores import ActivationSlot as ActivationSlot
    from model_checkpoint.recompute.activations.stores import ActivationStore as ActivationStore
    from model_checkpoint.recompute.activations.stores import DeviceStore as DeviceStore
    from model_checkpoint.recompute.activations.stores import MemoryStore as MemoryStore
    from model_checkpoint.recompute.activations.strategies import CheckpointStrategyBase as CheckpointStrategyBase
    from model_checkpoint.recompute.activations.strategies import (
        CheckpointStrategyProtocol as CheckpointStrategyProtocol,
    )
    from model_checkpoint.recompute.activations.strategies import IntervalStrategy as IntervalStrategy
    from model_checkpoint.recompute.activations.strategies import MemoryAwareStrategy as MemoryAwareStrategy
    from model_checkpoint.recompute.activations.strategies import SelectiveStrategy as SelectiveStrategy
    from model_checkpoint.recompute.activations.strategies import SizeBasedStrategy as SizeBasedStrategy
    from model_checkpoint.recompute.activations.strategies import SmartStrategy as SmartStrategy
    from model_checkpoint.recompute.activations.strategies import create_interval as create_interval
    from model_checkpoint.recompute.activations.strategies import create_memory_aware as create_memory_aware
    from model_checkpoint.recompute.activations.strategies import create_selective as create_selective
    from model_checkpoint.recompute.activations.strategies import create_size_based as create_size_based
    from model_checkpoint.recompute.activations.strategies import create_smart as create_smart
    from model_checkpoint.recompute.activations.strategies import create_strategy as create_strategy
    from model_checkpoint.recompute.activations.tracker import MemoryTracker as MemoryTracker
    from model_checkpoint.recompute.auto.autocheckpoint import Profile as Profile
    from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint as auto_checkpoint
    from model_checkpoint.recompute.auto.common.determinism import Determinism as Determinism
    from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning as AutoCheckpointWarning
    from model_checkpoint.recompute.auto.common.errors import BudgetTooSmall as BudgetTooSmall
    from model_checkpoint.recompute.auto.common.errors import ModelRefused as ModelRefused
    from model_checkpoint.recompute.auto.common.errors import PlanMismatch as PlanMismatch
    from model_checkpoint.recompute.auto.common.errors import RecomputeDiverged as RecomputeDiverged
    from model_checkpoint.recompute.auto.common.errors import ValueChanged as ValueChanged
    from model_checkpoint.recompute.auto.common.peak import PeakTracker as PeakTracker
    from model_checkpoint.recompute.auto.common.peak import measure_peak as measure_peak
    from model_checkpoint.recompute.auto.common.statistics import RecomputeStatistics as RecomputeStatistics
    from model_checkpoint.recompute.auto.planning.pareto import Pareto as Pareto
    from model_checkpoint.recompute.auto.planning.pareto import ParetoRow as ParetoRow
    from model_checkpoint.recompute.auto.planning.plan import Plan as Plan
    from model_checkpoint.recompute.auto.planning.planner import Chain as Chain
    from model_checkpoint.recompute.auto.planning.planner import Mode as Mode
    from model_checkpoint.recompute.auto.planning.planner import Stage as Stage
    from model_checkpoint.recompute.auto.planning.planner import Table as Table
    from model_checkpoint.recompute.auto.planning.schedule import Keep as Keep
    from model_checkpoint.recompute.auto.planning.schedule import Region as Region
    from model_checkpoint.recompute.auto.running.region_frame import is_recomputing as is_recomputing
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
    from model_checkpoint.recompute.functions.async_recomputation import (
        AsyncRecomputationEngine as AsyncRecomputationEngine,
    )
    from model_checkpoint.recompute.functions.async_recomputation import RecomputationHandle as RecomputationHandle
    from model_checkpoint.recompute.functions.async_recomputation import (
        cancellation_requested as cancellation_requested,
    )
    from model_checkpoint.recompute.functions.graph import DependencyGraph as DependencyGraph
    from model_checkpoint.recompute.functions.recomputation_engine import (
        LayerRecomputationStats as LayerRecomputationStats,
    )
    from model_checkpoint.recompute.functions.recomputation_engine import RecomputationEngine as RecomputationEngine
    from model_checkpoint.recompute.functions.recomputation_engine import RecomputationEvent as RecomputationEvent
    from model_checkpoint.recompute.functions.recomputation_engine import RecomputationStats as RecomputationStats
    from model_checkpoint.recompute.functions.recomputer import Recomputer as Recomputer
    from model_checkpoint.recompute.functions.replay_strategy import DirectCall as DirectCall
    from model_checkpoint.recompute.functions.replay_strategy import ExactReplay as ExactReplay
    from model_checkpoint.recompute.functions.replay_strategy import RecomputationStrategy as RecomputationStrategy
    from model_checkpoint.recompute.manager import CheckpointManager as CheckpointManager


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
