"""transformers' Trainer and TRL's SFTTrainer train on packed rows without padding, and go on from every checkpoint."""

from typing import Any

import pytest

from headrace import Loader, Pipe
from headrace.doors.trainer.fed import TrainerBatches
from tests.conftest import RunScript

COMMON = """
    import json, logging, os, warnings
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import numpy as np, torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from headrace import Loader, Pipe
    from headrace.doors.trainer.fed import TrainerBatches, fed_by

    chance = np.random.default_rng(0)
    DOCUMENTS = [chance.integers(1, 250, n) for n in chance.integers(2, 30, 120).tolist()]

    def rows(workers=0):
        pipe = Pipe.of(DOCUMENTS).shuffle().pack(32, how="fit", form="flat", window=40).batch(2)
        return Loader(pipe, seed=3, workers=workers, kind="process" if workers else None)

    def model():
        torch.manual_seed(0)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
            )
        )

    def fit(base, config, workers, resume=None, **more):
        seen = []

        class Watched(base):
            def compute_loss(self, model, inputs, *given, **more):
                seen.append(inputs["input_ids"][0].tolist())
                return super().compute_loss(model, inputs, *given, **more)

        with rows(workers) as loader:
            trainer = fed_by(Watched, loader)(model=model(), args=config(resume), **more)
            trainer.train(resume_from_checkpoint=resume)
        return seen

    OPTIONS = dict(
        output_dir="run", max_steps=40, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no",
        save_steps=13,
    )

    def exact(base, config, **more):
        whole = fit(base, config, 2, **more)
        assert len(whole) == 40
        with rows() as loader:
            epoch = [batch["input_ids"][0].tolist() for batch in TrainerBatches(loader)]
            assert whole[: len(epoch)] == epoch
            assert len(epoch) < 39, "a checkpoint lies in the second epoch"
        for step in (13, 26, 39):
            again = fit(base, config, step % 2, f"run/checkpoint-{step}", **more)
            assert again == whole[step:], f"from step {step}"
"""


def test_a_batch_is_one_row_of_tensors_and_every_iteration_an_epoch() -> None:
    torch = pytest.importorskip("torch")
    pipe: Pipe[Any] = Pipe.of([[1, 2, 3], [4, 5]]).pack(5, how="fit", form="flat").batch(1)
    batches = TrainerBatches(Loader(pipe))
    for _ in range(2):
        (batch,) = batches
        assert torch.equal(batch["labels"], torch.tensor([[-100, 2, 3, -100, 5]]))
        assert batch["cu_seq_lens_q"].dtype == torch.int32
        assert batch["max_length_q"] == 3
    assert not hasattr(batches, "set_epoch")


@pytest.mark.integrations
@pytest.mark.timeout(600)
def test_transformers_trains_on_packed_rows_and_goes_on_from_every_checkpoint(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + """
    from transformers import Trainer, TrainingArguments

    net = model().eval()
    batch = next(iter(TrainerBatches(rows())))
    with torch.no_grad():
        joined = net(**batch).logits[0]
        ends = batch["cu_seq_lens_q"].tolist()
        for start, stop in zip(ends, ends[1:]):
            alone = net(input_ids=batch["input_ids"][:, start:stop]).logits[0]
            assert torch.allclose(joined[start:stop], alone, atol=1e-5), "documents see each other"

    exact(Trainer, lambda resume: TrainingArguments(save_strategy="no" if resume else "steps", **OPTIONS))
    print("exact")
    """,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "exact"


@pytest.mark.integrations
@pytest.mark.timeout(600)
def test_trl_trains_on_packed_rows_as_its_own_collator_makes_them(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + """
    import datasets
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    with rows() as loader:
        for packed, ours in zip(loader, TrainerBatches(rows())):
            cuts = [np.split(row["tokens"], row["cu_seqlens"][1:-1]) for row in packed]
            theirs = collator([{"input_ids": document.tolist()} for row in cuts for document in row])
            for name in ("input_ids", "labels", "position_ids", "cu_seq_lens_q", "cu_seq_lens_k"):
                assert torch.equal(theirs[name], ours[name]), name
            assert theirs["max_length_q"] == ours["max_length_q"]

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<end>"))
    config = lambda resume: SFTConfig(
        save_strategy="no" if resume else "steps", padding_free=True, dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None, **OPTIONS,
    )
    exact(
        SFTTrainer, config, train_dataset=datasets.Dataset.from_dict({"input_ids": [[1, 2]]}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>"),
    )
    print("exact")
    """,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "exact"
