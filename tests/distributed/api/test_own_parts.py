"""A user's own coordinator, storage, fault handler, validator, logger, checkers and states, each as small as can be."""

import numpy as np
import pytest
from tests.distributed.api.own_parts import (
    OwnCoordinator,
    OwnHandler,
    OwnLogger,
    OwnModel,
    OwnOptimizer,
    OwnResult,
    OwnStorage,
    OwnValidator,
)
from tests.distributed.threads import all_well, on_ranks

from model_checkpoint.distributed import (
    CheckpointException,
    CheckpointStorage,
    CheckpointValidator,
    CheckpointWarning,
    DistributedCheckpoint,
    ExceptionType,
    LoadOptions,
    LocalCoordinator,
    SaveOptions,
    StateDict,
    Stateful,
    ValidationResult,
)
from model_checkpoint.errors import OptionInvalid

X = SaveOptions(checkpoint_prefix="x")
FROM_X = LoadOptions(checkpoint_prefix="x")


def test_a_coordinator_of_five_members_is_enough(tmp_path):
    board = {}

    def save_and_load(thread):
        coordinator = OwnCoordinator(thread.rank, 2, board)
        checkpoint = DistributedCheckpoint(coordinator, tmp_path)
        checkpoint.save({"w": np.ones(3), "own": thread.rank}, {"m": 1}, X)
        live = {"w": np.zeros(3), "own": -1}
        return checkpoint.load(live, {"m": 0}, FROM_X).target_world_size, live["own"]

    assert all_well(on_ranks(2, save_and_load)) == [(2, 0), (2, 1)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_storage_of_seven_calls_keeps_checkpoints_of_any_number_of_ranks(world):
    storage = OwnStorage()
    assert isinstance(storage, CheckpointStorage)

    def save(coordinator):
        checkpoint = DistributedCheckpoint(coordinator, storage)
        checkpoint.save(OwnModel(coordinator), {"m": coordinator.rank}, X)
        return checkpoint.get_storage()

    def load(coordinator):
        checkpoint, model = DistributedCheckpoint(coordinator, storage), OwnModel(coordinator, fill=-1)
        result = checkpoint.load(model, None, LoadOptions(checkpoint_prefix="x", load_optimizer=False, per_rank=0))
        return model.rows, result

    assert all(one is storage for one in all_well(on_ranks(world, save)))
    for target in (1, 2, 3):
        loaded = all_well(on_ranks(target, load))
        assert np.array_equal(np.concatenate([rows for rows, _ in loaded]), np.arange(24.0).reshape(6, 4))
        assert all(one.source_world_size == world and one.was_resharded == (world != target) for _, one in loaded)
    checkpoint = DistributedCheckpoint(LocalCoordinator(), storage)
    assert [info.prefix for info in checkpoint.list_checkpoints()] == ["x"]
    checkpoint.delete_checkpoint("x")
    assert checkpoint.list_checkpoints() == []


def test_a_prefix_in_a_storage_of_ones_own_is_replaced_only_if_asked_for():
    checkpoint = DistributedCheckpoint(LocalCoordinator(), OwnStorage())
    checkpoint.save({"w": np.ones(3)}, {"m": 1}, X)

    with pytest.raises(CheckpointException, match="already committed"):
        checkpoint.save({"w": np.full(3, 2.0)}, {"m": 1}, X)
    checkpoint.save({"w": np.full(3, 3.0)}, {"m": 1}, SaveOptions(checkpoint_prefix="x", overwrite=True))

    live = {"w": np.zeros(3)}
    checkpoint.load(live, {"m": 0}, FROM_X)
    assert live["w"].tolist() == [3.0] * 3


def test_damage_in_a_storage_of_ones_own_is_found():
    storage = OwnStorage()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), storage)
    checkpoint.save({"w": np.ones(3)}, {"m": 1}, X)
    (path,) = storage.list("data/")
    storage.write(path, storage.read(path)[:-1] + b"?")

    with pytest.raises(CheckpointException, match="validation failed") as caught:
        checkpoint.load({"w": np.zeros(3)}, {"m": 0}, FROM_X)
    assert caught.value.type is ExceptionType.CORRUPTED_CHECKPOINT


def test_something_that_lacks_a_call_is_no_storage():
    class Half:
        def write(self, path, data): ...

    with pytest.raises(OptionInvalid, match="it lacks create, read, exists, delete, list, get_metadata"):
        DistributedCheckpoint(LocalCoordinator(), Half())


def test_a_fault_handler_of_three_methods_is_asked(tmp_path):
    class Weak(OwnStorage):
        failures = 2

        def write(self, path, data):
            if path.startswith("data/") and self.failures:
                self.failures -= 1
                raise ConnectionError("for a moment")
            super().write(path, data)

    handler, storage = OwnHandler(), Weak()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), storage, handler)

    with pytest.raises(CheckpointException, match="for a moment") as caught:
        checkpoint.save({"w": np.ones(3)}, {"m": 1}, X)
    assert handler.rolled_back == ["x"]
    assert (handler.retried, caught.value.type) == (1, ExceptionType.STORAGE_ERROR)
    storage.failures = 1
    checkpoint.save({"w": np.ones(3)}, {"m": 1}, X)

    assert handler.retried == 2
    assert [info.prefix for info in checkpoint.list_checkpoints()] == ["x"]


def test_nothing_is_rolled_back_where_a_whole_checkpoint_is(tmp_path):
    handler = OwnHandler()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path, handler)
    checkpoint.save({"w": 1}, {"m": 1}, X)

    with pytest.raises(CheckpointException, match="already committed"):
        checkpoint.save({"w": 2}, {"m": 1}, X)
    assert handler.rolled_back == []


def test_a_validator_of_one_method_decides_on_every_rank(tmp_path):
    good, bad = OwnValidator(OwnResult()), OwnValidator(OwnResult(is_valid=False))

    def save_and_load(coordinator):
        first = DistributedCheckpoint(coordinator, tmp_path, None, good)
        first.save({"w": 1}, {"m": 1}, X)
        first.load({"w": 0}, {"m": 0}, FROM_X)
        second = DistributedCheckpoint(coordinator, tmp_path, None, bad if coordinator.rank == 1 else good)
        with pytest.raises(CheckpointException, match="validation failed: seen by hand") as caught:
            second.load({"w": 0}, {"m": 0}, FROM_X)
        second.load({"w": 0}, {"m": 0}, LoadOptions(checkpoint_prefix="x", skip_validation=True))
        return type(caught.value).__name__, str(caught.value), caught.value.type

    told = all_well(on_ranks(2, save_and_load))

    assert told[0] == told[1]
    assert told[0][0] == "ValidationFailed"
    assert told[0][2] is ExceptionType.VALIDATION_FAILED
    assert bad.asked == ["x"]


def test_warnings_of_a_validator_of_ones_own_are_told(tmp_path):
    validator = OwnValidator(OwnResult(has_warnings=True))
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path, None, validator)
    checkpoint.save({"w": 1}, {"m": 1}, X)

    with pytest.warns(CheckpointWarning, match="seen by hand"):
        result = checkpoint.load({"w": 0}, {"m": 0}, FROM_X)
    assert result.warnings == ("seen by hand",)


def test_a_logger_of_three_methods_hears_the_story(tmp_path):
    logger = OwnLogger()
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path, None, None, logger)

    checkpoint.save({"w": 1}, {"m": 1}, X)
    checkpoint.load({"w": 0}, {"m": 0}, FROM_X)
    with pytest.raises(CheckpointException, match="already committed"):
        checkpoint.save({"w": 1}, {"m": 1}, X)
    checkpoint.delete_checkpoint("x")

    assert [line for line in logger.lines if line[0] == "info"] == [
        ("info", "Saving checkpoint: x (rank: 0/1)"),
        ("info", "Checkpoint saved successfully: x"),
        ("info", "Loading checkpoint: x (rank: 0/1)"),
        ("info", "Checkpoint loaded successfully: x"),
        ("info", "Saving checkpoint: x (rank: 0/1)"),
        ("info", "Deleting checkpoint: x"),
        ("info", "Checkpoint deleted: x"),
    ]
    assert [line[1][:26] for line in logger.lines if line[0] == "error"] == ["Failed to save checkpoint:"]


@pytest.mark.parametrize(("source", "target"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2)])
def test_stateful_objects_of_two_methods_are_saved_and_resharded(tmp_path, source, target):
    def save(coordinator):
        model, optimizer = OwnModel(coordinator), OwnOptimizer(step=7, m=np.ones(3))
        assert isinstance(model, Stateful)
        DistributedCheckpoint(coordinator, tmp_path).save(model, optimizer, X)

    def load(coordinator):
        model, optimizer = OwnModel(coordinator, fill=-1), OwnOptimizer()
        options = LoadOptions(checkpoint_prefix="x", load_rng_state=False)
        result = DistributedCheckpoint(coordinator, tmp_path).load(model, optimizer, options)
        assert isinstance(model.taken, StateDict)
        assert isinstance(result.model_state, StateDict)
        return model.rows, optimizer.state

    all_well(on_ranks(source, save))
    loaded = all_well(on_ranks(target, load))

    assert np.array_equal(np.concatenate([rows for rows, _ in loaded]), np.arange(24.0).reshape(6, 4))
    assert all(state["step"] == 7 and state["m"].tolist() == [1.0] * 3 for _, state in loaded)


def test_a_state_that_is_no_mapping_is_refused(tmp_path):
    class Odd(OwnModel):
        def get_state_dict(self):
            return [1, 2]

    with pytest.raises(TypeError, match="expected a StateDict or another mapping"):
        DistributedCheckpoint(LocalCoordinator(), tmp_path).save(Odd(LocalCoordinator()), {"m": 1}, X)


def test_checkers_of_ones_own_are_asked_beside_none_of_ours(tmp_path):
    seen = []

    class OwnIntegrity:
        name = "own integrity"

        def check_integrity(self, data, shard):
            assert len(data.read()) == data.size == shard.file_size
            seen.append(shard.file_path)
            return ValidationResult(self.name)

    class OwnCompatibility:
        name = "own compatibility"

        def check_compatibility(self, metadata):
            result = ValidationResult(self.name, ExceptionType.INCOMPATIBLE_VERSION)
            if metadata.custom_fields.get("tokenizer") != 2:
                result.add_error(f"made for tokenizer {metadata.custom_fields.get('tokenizer')}")
            return result

    validator = CheckpointValidator(tmp_path, [OwnIntegrity()], [OwnCompatibility()])
    checkpoint = DistributedCheckpoint(LocalCoordinator(), tmp_path, validator=validator)
    checkpoint.save({"w": np.ones(3)}, {"m": 1}, SaveOptions(checkpoint_prefix="x", custom_metadata={"tokenizer": 1}))

    with pytest.raises(CheckpointException, match="made for tokenizer 1") as caught:
        checkpoint.load({"w": np.zeros(3)}, {"m": 0}, FROM_X)
    assert caught.value.type is ExceptionType.INCOMPATIBLE_VERSION
    with pytest.warns(CheckpointWarning, match="made for tokenizer 1"):
        result = checkpoint.load({"w": np.zeros(3)}, {"m": 0}, LoadOptions(checkpoint_prefix="x", strict_mode=False))

    assert result.warnings == ("own compatibility: made for tokenizer 1",)
    assert seen == [path.name for path in (tmp_path / "checkpoints" / "x").glob("*.safetensors")] * 2


def test_what_a_lenient_load_lets_through_is_a_warning_on_every_rank(tmp_path):
    class Strict:
        name = "tokenizer"

        def check_compatibility(self, metadata):
            result = ValidationResult(self.name)
            result.add_error("made for another")
            return result

    def load(ranks):
        validator = CheckpointValidator(tmp_path, [], [Strict()], coordinator=ranks)
        checkpoint = DistributedCheckpoint(ranks, tmp_path, validator=validator)
        checkpoint.save({"w": np.ones(3), "old": 1}, {"m": 1}, SaveOptions(checkpoint_prefix="x"))
        model = {"w": np.zeros(3), "new": 2}
        try:
            checkpoint.load(model, {"m": 0}, FROM_X)
        except CheckpointException as error:
            refused = error.type, str(error), model["w"].tolist()
        result = checkpoint.load(model, {"m": 0}, LoadOptions(checkpoint_prefix="x", strict_mode=False))
        return refused, result.warnings, model

    with pytest.warns(CheckpointWarning, match="made for another|not all of it fits"):
        told = all_well(on_ranks(2, load))

    for (kind, text, before), warnings, model in told:
        assert kind is ExceptionType.VALIDATION_FAILED
        assert "made for another" in text
        assert before == [0, 0, 0]
        assert warnings[0] == "tokenizer: made for another"
        assert "model.new" in warnings[1]
        assert "model.old" in warnings[1]
        assert model["w"].tolist() == [1, 1, 1]
        assert model["new"] == 2
