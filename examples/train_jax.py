"""A training loop in JAX: batches are on the device before the step asks for them.

    pip install 'headrace[jax]'
    python examples/train_jax.py

Fits a line. The loader's state belongs to the batch that the loop has in hand, although copies of the next ones are
already under way.
"""

import jax
import jax.numpy as jnp
import numpy as np

from headrace import Loader, Pipe
from headrace.device import ahead


def make() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(4096, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5], np.float32) + draw.normal(0, 0.1, 4096).astype(np.float32)
    return {"x": x, "y": y}


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        return jnp.mean((x @ weights - y) ** 2)

    error, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * slope, error


def main() -> None:
    pipe = Pipe.of(make()).shuffle().batch(128)
    weights = jnp.zeros(3)
    with Loader(pipe, workers=2, seed=7) as loader:
        feed = ahead(loader, "jax")
        for epoch in range(3):
            for batch in feed:
                weights, error = step(weights, batch["x"], batch["y"])
            print(f"epoch {epoch}: error {float(error):.4f}")

        batches = iter(feed)
        for _ in range(10):
            next(batches)
        saved = feed.state_dict()
        rest = [np.asarray(batch["y"]) for batch in batches]

    with Loader(pipe, seed=7) as loader:
        again = ahead(loader, "jax")
        again.load_state_dict(saved)
        assert all((a == np.asarray(b["y"])).all() for a, b in zip(rest, again, strict=True))
    print(f"weights {np.round(np.asarray(weights), 2).tolist()}, and {len(rest)} batches were the same after a stop")


if __name__ == "__main__":
    main()
