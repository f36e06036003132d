"""``generate()`` of transformers: the CPU's tokens, and few programs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation import GenerationMixin
from transformers.generation.streamers import BaseStreamer

from torchtpu import inspect
from torchtpu.integrations.transformers.cache import PowerOfTwoLayer, bucket, layers_of

_SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256}


def _pair(model: Any) -> tuple[Any, Any]:
    """The model on the CPU and on the device, without an end token: the lengths are those that a test asks for."""
    model = model.eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    return model, copy.deepcopy(model).to("tpu")


@pytest.fixture(scope="module")
def llama() -> tuple[Any, Any]:
    """A tiny LLaMA."""
    torch.manual_seed(0)
    return _pair(LlamaForCausalLM(LlamaConfig(**_SIZES)))


def _prompt(length: int, batch: int = 1) -> torch.Tensor:
    return torch.randint(1, 64, (batch, length), generator=torch.Generator().manual_seed(length))


def _both(pair: tuple[Any, Any], prompt: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    results = []
    for model in pair:
        torch.manual_seed(3)
        given = {name: value.to(model.device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
        results.append(model.generate(prompt.to(model.device), **given))
    assert results[1].device.type == "tpu"
    return results[0], results[1].cpu()


@pytest.mark.parametrize("options", [
    {},
    {"do_sample": True, "top_p": 0.9, "temperature": 0.8},
    {"do_sample": True, "repetition_penalty": 1.3},
    {"num_beams": 3},
    {"cache_implementation": "static"},
    {"prompt_lookup_num_tokens": 3},
    {"use_cache": False},
    {"guidance_scale": 1.7, "negative_prompt_ids": torch.tensor([[5, 9, 2]])},
], ids=str)
def test_tokens_are_the_cpus(llama: tuple[Any, Any], options: dict[str, Any]) -> None:
    """Greedy, sampled with one seed, beams, a static cache, candidates from the prompt, no cache, and guided by another prompt."""
    expected, got = _both(llama, _prompt(9), max_new_tokens=12, **options)
    assert torch.equal(expected, got)


def test_a_padded_batch(llama: tuple[Any, Any]) -> None:
    """Left padding, with its mask."""
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, :4] = 0
    expected, got = _both(llama, _prompt(11, 3), attention_mask=mask, max_new_tokens=8)
    assert torch.equal(expected, got)


def test_an_assistant(llama: tuple[Any, Any]) -> None:
    """Candidates of another model, whose cache is cut back after each round."""
    torch.manual_seed(1)
    assistants = _pair(LlamaForCausalLM(LlamaConfig(**_SIZES)))
    expected, got = (
        model.generate(_prompt(9).to(model.device), assistant_model=assistant, max_new_tokens=16).cpu()
        for model, assistant in zip(llama, assistants, strict=True))
    assert torch.equal(expected, got)


def test_the_cache_doubles_and_a_window_slides() -> None:
    """A text longer than two capacities, through layers that see eight tokens."""
    torch.manual_seed(2)
    pair = _pair(MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=8)))
    expected, got = _both(pair, _prompt(60), max_new_tokens=80)
    assert torch.equal(expected, got)


def test_an_encoder_and_a_decoder() -> None:
    """The encoder's prompt is padded as well."""
    torch.manual_seed(4)
    sizes: dict[str, Any] = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
                             "decoder_start_token_id": 0}
    pair = _pair(T5ForConditionalGeneration(T5Config(**sizes)))
    for length in (5, 11):
        expected, got = _both(pair, _prompt(length, 2), max_new_tokens=6)
        assert torch.equal(expected, got)
    encoded = [model.get_encoder()(_prompt(9).to(model.device)) for model in pair]
    made = [model.generate(encoder_outputs=outputs, max_new_tokens=6).cpu() for model, outputs in zip(pair, encoded, strict=True)]
    assert torch.equal(*made)


def test_a_conversation_goes_on(llama: tuple[Any, Any]) -> None:
    """A cache of the user's is continued, and counts real tokens alone."""
    results = []
    for model in llama:
        cache = DynamicCache(config=model.config)
        first = model.generate(_prompt(7).to(model.device), cache=cache, max_new_tokens=5)
        assert cache.get_seq_length() == 11
        longer = torch.cat([first, _prompt(6).to(model.device)], dim=1)
        results.append(model.generate(longer, cache=cache, max_new_tokens=5).cpu())
    assert len(layers_of(cache)) == 2
    assert torch.equal(*results)


def test_a_streamer_sees_every_token(llama: tuple[Any, Any]) -> None:
    """On the host, the prompt first."""

    class Collector(BaseStreamer):
        def __init__(self) -> None:
            self.tokens: list[int] = []

        def put(self, value: torch.Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.tokens.append(-1)

    collector = Collector()
    result = llama[1].generate(_prompt(5).to("tpu"), max_new_tokens=4, streamer=collector)
    assert collector.tokens == [*result.flatten().tolist(), -1]


def test_all_results_are_on_the_device(llama: tuple[Any, Any]) -> None:
    """Scores too; and hidden states have the prompt's own length."""
    expected, got = (model.generate(
        _prompt(9).to(model.device), max_new_tokens=3, return_dict_in_generate=True, output_scores=True, output_hidden_states=True)
        for model in llama)
    assert got.sequences.device.type == got.scores[0].device.type == "tpu"
    torch.testing.assert_close(got.scores[2].cpu(), expected.scores[2], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got.hidden_states[0][-1].cpu(), expected.hidden_states[0][-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=str)
def test_many_lengths_cost_few_programs(llama: tuple[Any, Any], options: dict[str, Any]) -> None:
    """Prompts of 1 to 100 tokens: a program a power of two for the prompt, and for the cache; the second time none."""
    model = llama[1]
    lengths = (1, 3, 17, 40, 64, 65, 100)
    before = inspect.counters()["programs"]
    for length in lengths:
        model.generate(_prompt(length).to("tpu"), max_new_tokens=4, **options)
    after = inspect.counters()["programs"]
    assert after - before <= 10
    for length in (2, 33, 50, 63, 77, 99, 120):
        model.generate(_prompt(length).to("tpu"), max_new_tokens=5, **options)
    assert inspect.counters()["programs"] == after


def test_without_the_integration_every_token_is_a_program(llama: tuple[Any, Any]) -> None:
    """When this fails, transformers itself has learned what the integration is for."""
    plain: Any = GenerationMixin.generate.__wrapped__
    before = inspect.counters()["programs"]
    plain(llama[1], _prompt(21).to("tpu"), max_new_tokens=6)
    assert inspect.counters()["programs"] - before >= 6


def test_buckets() -> None:
    """Powers of two from the smallest on; one token is one."""
    assert [bucket(n, 16) for n in (1, 2, 16, 17, 64, 65)] == [1, 16, 16, 32, 64, 128]


def test_a_layer_alone() -> None:
    """Outside of ``generate()`` a layer counts by itself, and what it returns starts with its tokens."""
    layer = PowerOfTwoLayer()
    states = torch.randn(1, 2, 70, 4)
    for first, last in ((0, 3), (3, 4), (4, 70)):
        assert layer.get_mask_sizes(last - first)[0] >= last
        keys, values = layer.update(states[:, :, first:last], -states[:, :, first:last])
        assert torch.equal(keys[:, :, :last], states[:, :, :last]) and torch.equal(values[:, :, :last], -states[:, :, :last])
    assert (layer.get_seq_length(), keys.shape[2]) == (70, 256)  # 66 new tokens may be a padded prompt of 128
    layer.crop(-2)
    assert layer.get_seq_length() == 68


def test_embeddings_in_place_of_tokens(llama: tuple[Any, Any]) -> None:
    """Of a prompt that the user embeds."""
    expected, got = (
        model.generate(inputs_embeds=model.get_input_embeddings()(_prompt(9, 2).to(model.device)).detach(), max_new_tokens=6).cpu()
        for model in llama)
    assert torch.equal(expected, got)


@pytest.mark.parametrize("kind", [LlamaForCausalLM, MistralForCausalLM])
def test_attentions_are_those_to_real_tokens(kind: Any) -> None:
    """Not to the memory behind them, nor to those that a window has dropped; of the prompt and of single tokens."""
    torch.manual_seed(5)
    window = {} if kind is LlamaForCausalLM else {"sliding_window": 8}
    pair = _pair(kind(kind.config_class(**_SIZES, **window, attn_implementation="eager")))
    expected, got = (model.generate(
        _prompt(11).to(model.device), max_new_tokens=3, return_dict_in_generate=True, output_attentions=True).attentions
        for model in pair)
    torch.testing.assert_close(
        [[layer.cpu() for layer in step] for step in got], [list(step) for step in expected], rtol=1e-4, atol=1e-4)


class _Bias(LogitsProcessor):
    def __init__(self, device: torch.device) -> None:
        self.bias = torch.zeros(64, device=device)
        self.num_calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.num_calls += 1
        self.bias[input_ids[:, -1]] -= 2
        return scores + self.bias


class _Enough(StoppingCriteria):
    def __init__(self, device: torch.device) -> None:
        self.length = torch.tensor(13, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return (torch.tensor(input_ids.shape[1], device=self.length.device) >= self.length).expand(input_ids.shape[0])


def test_callables_that_hold_tensors_on_the_device(llama: tuple[Any, Any]) -> None:
    """A processor, with a state that the user sees afterwards, and a criterion."""
    results = []
    for model in llama:
        processor = _Bias(model.device)
        tokens = model.generate(
            _prompt(9).to(model.device), max_new_tokens=8, logits_processor=[processor], stopping_criteria=[_Enough(model.device)])
        assert tokens.shape[1] == 13 and processor.num_calls == 4
        results.append((tokens.cpu(), processor.bias.cpu()))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def test_a_cache_goes_on_under_other_modes(llama: tuple[Any, Any]) -> None:
    """Made in inference mode and used outside of it; then with gradients through two calls."""
    results = []
    for model in llama:
        cache = DynamicCache(config=model.config)
        with torch.inference_mode():
            first = model.generate(_prompt(7).to(model.device), cache=cache, max_new_tokens=3).tolist()
        second = model.generate(_prompt(14).to(model.device), cache=cache, max_new_tokens=3)
        logits = [model(_prompt(length).to(model.device), cache=cache).logits for length in (3, 4)]
        (logits[0].sum() + logits[1].square().sum()).backward()
        gradient = model.model.layers[0].self_attn.k_proj.weight.grad
        model.zero_grad()
        results.append((first, second.cpu(), gradient.cpu()))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[1][1:], results[0][1:], rtol=1e-3, atol=1e-4)


def test_a_cache_forgets_no_more_than_it_holds(llama: tuple[Any, Any]) -> None:
    """As the library's own."""
    cache = llama[1].generate(_prompt(7).to("tpu"), max_new_tokens=2, return_dict_in_generate=True).cache
    cache.crop(-100)
    assert cache.get_seq_length() == 0


def test_experts() -> None:
    """Tokens are counted for each with a histogram of integers."""
    torch.manual_seed(6)
    pair = _pair(MixtralForCausalLM(MixtralConfig(**_SIZES, num_local_experts=4, num_experts_per_tok=2)))
    expected, got = _both(pair, _prompt(9, 2), max_new_tokens=5)
    assert torch.equal(expected, got)
