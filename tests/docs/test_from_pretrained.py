"""Weights are handed to Hugging Face as the README says: the folder itself, or the loaded weights."""

import pytest
import torch

import model_checkpoint as mc

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


def test_from_pretrained_takes_the_weights_of_any_checkpoint(bert, tmp_path):
    mc.save(tmp_path, {"model": bert, "epoch": 1}, step=1)
    weights = mc.load(tmp_path, parts="model")["model"]

    assert same_weights(bert, transformers.BertModel.from_pretrained(None, config=bert.config, state_dict=weights))
