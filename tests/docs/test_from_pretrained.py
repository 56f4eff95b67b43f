"""Weights are handed to Hugging Face as the README says: the folder itself, or the loaded weights."""

import pytest
import torch
from tests.distributed.threads import all_well, on_ranks

import model_checkpoint as mc
from model_checkpoint.distributed import Shard

transformers = pytest.importorskip("transformers")


@pytest.fixture
def bert():
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50
    )
    return transformers.BertModel(config)


def same_weights(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_from_pretrained_opens_a_consolidated_checkpoint(bert, tmp_path):
    info = mc.save(tmp_path, {"model": bert, "epoch": 1}, step=1, format=mc.CheckpointFormat.CONSOLIDATED)

    assert same_weights(bert, transformers.BertModel.from_pretrained(info.path, config=bert.config))


def test_from_pretrained_opens_what_ranks_that_had_rows_of_it_each_have_consolidated(bert, tmp_path):
    def save(ranks):
        rows = {name: rows_of(tensor, ranks.rank) for name, tensor in bert.state_dict().items()}
        return mc.save(tmp_path, {"model": rows}, step=1, coordinator=ranks, format=mc.CheckpointFormat.CONSOLIDATED)

    def rows_of(tensor, rank):
        half = len(tensor) // 2
        part = tensor[half:] if rank else tensor[:half]
        return Shard(part, global_shape=tensor.shape, offsets=(half * rank, *[0] * (tensor.dim() - 1)))

    info, _ = all_well(on_ranks(2, save))

    assert same_weights(bert, transformers.BertModel.from_pretrained(info.path, config=bert.config))


def test_from_pretrained_takes_the_weights_of_any_checkpoint(bert, tmp_path):
    mc.save(tmp_path, {"model": bert, "epoch": 1}, step=1)
    weights = mc.load(tmp_path, parts="model")["model"]

    assert same_weights(bert, transformers.BertModel.from_pretrained(None, config=bert.config, state_dict=weights))
