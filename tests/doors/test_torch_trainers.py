"""Trainers train through our DataLoader, stop, and go on by their own path, with nothing skipped or read twice.

Each program trains a small model whole, writing down what it sees, and then once more from every checkpoint on the way.
"""

import textwrap
from pathlib import Path

import pytest

from tests.conftest import RunScript

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(600)]

COMMON = """
    import logging, os, sys, warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    from headrace.doors.torch.loader import DataLoader
    from headrace.doors.torch.install import install

    DATA = torch.arange(10.0).view(-1, 1)

    def loader(workers):
        return DataLoader(DATA, 3, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(5))

    def check(name, step, got, wanted):
        assert got == wanted, f"{name} from step {step}: {got} instead of {wanted}"

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(1, 1)
            self.seen = []

        def forward(self, x=None, labels=None, **more):
            self.seen.append(x[:, 0].int().tolist())
            return {"loss": self.line(x).pow(2).mean()}
"""


def test_torch_distributed_checkpoint_keeps_it_as_it_is(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.stateful import Stateful

    first = loader(2)
    assert isinstance(first, Stateful)
    it = iter(first)
    next(it), next(it)
    dcp.save({"loader": first}, checkpoint_id="saved", no_dist=True)
    second = loader(0)
    dcp.load({"loader": second}, checkpoint_id="saved", no_dist=True)
    check("dcp", 2, [b.tolist() for b in second], [b.tolist() for b in it])
    print("exact")
    """
    )
    assert (done.stdout, done.returncode) == ("exact\n", 0), done.stderr


def test_lightning_resumes_from_every_checkpoint(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + """
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, number):
            return self.net(batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    def fit(workers, checkpoint=None, save=False):
        saving = [ModelCheckpoint("saved", filename="{step}", every_n_train_steps=1, save_top_k=-1)] if save else []
        trainer = pl.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=saving, enable_checkpointing=save,
        )
        module = Module()
        trainer.fit(module, loader(workers), ckpt_path=checkpoint)
        return module.net.seen

    whole = fit(2, save=True)
    assert len(whole) == 12
    for step in range(1, 13):
        check("lightning", step, fit(step % 2, f"saved/step={step}.ckpt"), whole[step:])
    print("exact")
    """,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "exact"


ACCELERATE = """
    install()
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from accelerate.utils import DataLoaderConfiguration

    def prepared(workers, stateful):
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        accelerator = Accelerator(
            cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=stateful)
        )
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        net, optimizer, batches = accelerator.prepare(net, optimizer, loader(workers))
        assert isinstance(batches.base_dataloader, DataLoader), "Accelerate builds its own, and that is ours"
        return accelerator, net, optimizer, batches

    def train(accelerator, net, optimizer, batches, epochs, save=False):
        step = 0
        for _ in range(epochs):
            for batch in batches:
                accelerator.backward(net(batch)["loss"])
                optimizer.step()
                step += 1
                if save:
                    accelerator.save_state(f"saved/{step}")
        return net.seen
"""


def test_accelerate_resumes_a_stateful_loader(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + ACCELERATE
        + """
    whole = train(*prepared(2, True), epochs=3, save=True)
    assert len(whole) == 12
    for step in range(1, 12):
        accelerator, net, optimizer, batches = prepared(step % 2, True)
        accelerator.load_state(f"saved/{step}")
        check("accelerate", step, train(accelerator, net, optimizer, batches, 3 - step // 4), whole[step:])
    print("exact")
    """,
        timeout=500,
    )
    assert (done.stdout, done.returncode) == ("exact\n", 0), done.stderr


DISPATCH = """
    import json
    from torch.utils.data import IterableDataset

    class Rows(IterableDataset):
        def __iter__(self):
            return iter(DATA)

    def steps(batches):
        return [batch[:, 0].int().tolist() for batch in batches]

    def prepared(style, workers):
        accelerator = Accelerator(
            cpu=True,
            dataloader_config=DataLoaderConfiguration(
                dispatch_batches=style != "shard", use_stateful_dataloader=True, even_batches=False
            ),
        )
        return accelerator.prepare(DataLoader(DATA if style != "stream" else Rows(), 2, num_workers=workers))

    DATA = torch.arange(16.0).view(-1, 1)
    rank = int(os.environ["RANK"])
    for style, workers in (("map", 0), ("map", 1), ("stream", 0), ("stream", 1), ("shard", 0)):
        whole = prepared(style, workers)
        states, seen = [], []
        for batch in whole:
            seen.append(batch[:, 0].int().tolist())
            states.append(dict(whole.state_dict()))
        assert len(seen) == 4, seen
        for step in range(1, 4):
            again = prepared(style, workers)
            again.load_state_dict(states[step - 1])
            check(f"{style} with {workers} workers on rank {rank}", step, steps(again), seen[step:])
    print("exact", flush=True)
"""


def test_accelerate_dispatches_batches_and_goes_on_without_a_gap(run_script: RunScript, tmp_path: Path) -> None:
    script = tmp_path / "dispatch.py"
    script.write_text(textwrap.dedent(COMMON + ACCELERATE + DISPATCH))
    done = run_script(
        f"""
        import subprocess, sys
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        sys.exit(subprocess.run([*torchrun, {str(script)!r}]).returncode)
        """,
        env={"OMP_NUM_THREADS": "1"},
        timeout=500,
    )
    assert (done.stdout, done.returncode) == ("exact\n" * 2, 0), done.stderr


def test_accelerate_skips_first_batches(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + ACCELERATE
        + """
    whole = train(*prepared(2, False), epochs=1)
    accelerator, net, optimizer, batches = prepared(1, False)
    rest = accelerator.skip_first_batches(batches, 2)
    check("accelerate", 2, train(accelerator, net, optimizer, rest, 1), whole[2:])
    print("exact")
    """,
        timeout=500,
    )
    assert (done.stdout, done.returncode) == ("exact\n", 0), done.stderr


def test_the_hugging_face_trainer_resumes_from_every_checkpoint(run_script: RunScript) -> None:
    done = run_script(
        COMMON
        + """
    install()
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(DATA)

        def __getitem__(self, index):
            return {"x": DATA[index], "labels": DATA[index]}

    class Looks(TrainerCallback):
        def on_train_begin(self, args, state, control, train_dataloader=None, **more):
            ours = getattr(train_dataloader, "base_dataloader", train_dataloader)
            assert isinstance(ours, DataLoader) and type(ours).__module__.startswith("headrace"), type(ours)

    def fit(workers, checkpoint=None, save=False):
        net = Net()
        arguments = TrainingArguments(
            "saved", num_train_epochs=3, per_device_train_batch_size=3, use_cpu=True, report_to=[], seed=4,
            save_strategy="steps" if save else "no", save_steps=1, dataloader_num_workers=workers,
            disable_tqdm=True, logging_strategy="no",
        )
        trainer = Trainer(model=net, args=arguments, train_dataset=Rows(), callbacks=[Looks()])
        trainer.train(resume_from_checkpoint=checkpoint)
        return net.seen

    whole = fit(2, save=True)
    assert len(whole) == 12
    for step in (1, 3, 4, 6, 8, 11):
        check("transformers", step, fit(step % 2, f"saved/checkpoint-{step}"), whole[step:])
    print("exact")
    """,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "exact"
