"""A byte-level language model, pre-trained with DDP on CPU; it can be killed and goes on with another number of ranks.

    python examples/text_pretrain.py --folder run --ranks 2 --steps 20 --die-at 12     # killed at step 12
    python examples/text_pretrain.py --folder run --ranks 4 --steps 20                 # goes on, and ends

Every rank writes the rows it trains on, so that one can see that both runs together have had each row once, in order.
Gone on with as many ranks as before, it comes to exactly the weights of a run that was never killed, dropout included.
"""

import argparse
import hashlib
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from headrace import Loader, Pipe, World
from headrace.ops.text.labels import shifted

LENGTH, GLOBAL_BATCH, VOCABULARY = 64, 8, 257


def corpus(folder: Path) -> list[str]:
    """Two small sources, tokenized once."""
    from headrace.cli import main

    for name in ("web", "books"):
        text = folder / f"{name}.jsonl"
        if not (folder / f"{name}.bin").exists():
            lines = (json.dumps({"text": f"{name} {n} " * (1 + n % 9)}) for n in range(400))
            text.write_text("\n".join(lines))
            main(["tokenize", str(text), "--out", str(folder / name), "--tokenizer", "bytes", "--eos", "256"])
    return [str(folder / name) for name in ("web", "books")]


def rows(sources: list[str], batch: int) -> Pipe[dict[str, torch.Tensor]]:
    web, books = (Pipe.tokens(source).shuffle() for source in sources)
    mixed = web.mix(books, weights=[0.7, 0.3], by="tokens", ends="forever")
    return mixed.header(4000).pack(LENGTH, how="fit", window=256).map(shifted).batch(batch).collate()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.place = nn.Embedding(LENGTH, 32)
        self.drop = nn.Dropout(0.1)
        self.mix = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, VOCABULARY)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.out(self.mix(self.drop(self.embed(tokens) + self.place(positions)))[0])


def train(rank: int, ranks: int, folder: Path, sources: list[str], steps: int, die_at: int | None, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = Loader(rows(sources, GLOBAL_BATCH // ranks), seed=7, world=World(rank=rank, ranks=ranks), ends="drop")
    done, saved = 0, folder / "checkpoint.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["data"])
        done = state["step"]
    for step, batch in zip(range(done, steps), loader, strict=False):
        torch.manual_seed(step * ranks + rank)  # dropout follows from step and rank: nothing of it has to be saved
        tokens, labels = torch.as_tensor(batch["input"]), torch.as_tensor(batch["labels"])
        loss = nn.functional.cross_entropy(
            model(tokens, torch.as_tensor(batch["positions"])).flatten(0, 1), labels.flatten(), reduction="sum"
        )
        counted = (labels != -100).sum()
        dist.all_reduce(counted)  # ranks have different numbers of labels: divide by those of the whole step
        optimizer.zero_grad()
        (loss * ranks / counted).backward()
        optimizer.step()
        trained_on = [hashlib.sha256(row.numpy().tobytes()).hexdigest()[:12] for row in tokens]
        with (folder / f"rows-{step:04}-{rank}-of-{ranks}.json").open("w") as file:
            json.dump(trained_on, file)
        if rank == 0 and step % 5 == 4:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save({**state, "data": loader.state_dict()}, folder / "checkpoint.part")
            os.replace(folder / "checkpoint.part", saved)
        if step + 1 == die_at:
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    loader.close()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--port", type=int, default=29511)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    sources = corpus(args.folder)
    mp.spawn(train, (args.ranks, args.folder, sources, args.steps, args.die_at, args.port), nprocs=args.ranks)
    print(f"trained to step {args.steps} on {args.ranks} ranks")


if __name__ == "__main__":
    main()
