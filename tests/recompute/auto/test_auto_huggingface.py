"""Hugging Face models: caches off, generate as before, the same gradients."""

import copy

import pytest
import torch

from model_checkpoint.recompute.auto.autocheckpoint import auto_checkpoint
from model_checkpoint.recompute.auto.common.errors import AutoCheckpointWarning, ModelRefused

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=5, num_attention_heads=4
    )
    return transformers.BertForMaskedLM(config)


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=5, n_head=4, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


def gradients(model, batch):
    torch.manual_seed(1)
    model.zero_grad()
    model(**batch, use_cache=False).loss.backward() if model.config.model_type != "bert" else model(
        **batch
    ).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("build", [llama, bert, gpt2])
def test_hugging_face_models_train_alike_within_the_budget(build):
    model = build()
    tokens = torch.randint(3, 50, (2, 24))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    twin = copy.deepcopy(model)
    keys = list(twin.state_dict())

    auto_checkpoint(twin, 1.0, batch)
    plan = twin.plan
    auto_checkpoint(twin, int(plan.floor_bytes + 0.3 * (plan.plain_bytes - plan.floor_bytes)), profile=plan.profile)

    assert list(twin.state_dict()) == keys
    assert isinstance(twin, type(model))
    assert twin.plan.chain
    assert sum("layer" in s.name or ".h." in s.name for s in twin.plan.stages) >= 5
    assert set(twin.plan.fates()) != {"kept"}
    assert all(torch.equal(a, b) for a, b in zip(gradients(twin, batch), gradients(model, batch), strict=True))


def test_the_cache_is_switched_off_in_training_with_one_warning_and_generate_works():
    model = llama()
    tokens = torch.randint(3, 50, (1, 8))
    auto_checkpoint(model, 0.8, {"input_ids": tokens, "labels": tokens})

    with pytest.warns(AutoCheckpointWarning, match=r"^use_cache: switched off"):
        output = model(input_ids=tokens, labels=tokens)
    assert output.past_key_values is None
    output.loss.backward()
    model(input_ids=tokens, labels=tokens).loss.backward()

    with torch.no_grad():
        assert model(input_ids=tokens, use_cache=True).past_key_values is not None
    assert model.generate(tokens, max_new_tokens=3, do_sample=False).shape[1] <= 11


def test_a_cache_handed_in_is_refused_by_name():
    tokens = torch.randint(3, 50, (1, 8))
    batch = {"input_ids": tokens, "labels": tokens, "past_key_values": transformers.DynamicCache(), "use_cache": False}

    with pytest.raises(ModelRefused, match=r"the layer changes its past_key_values \(DynamicCache\)"):
        auto_checkpoint(llama(), 0.8, batch)
