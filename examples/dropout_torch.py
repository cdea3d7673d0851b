"""A PyTorch model, nn.Dropout then nn.Linear, against the closed form of DropoutRegressor.

nn.Dropout(1 - alpha) keeps an input with probability alpha and divides what it keeps by alpha, so the layer's weights w
play the part of alpha b: training minimises E || X S S' (w / alpha) - y ||^2, and w converges to A b, the corrected
estimator (rescale=True). Inputs are centred, as DropoutRegressor does by itself.
"""

import argparse
import sys
import time

import numpy as np

from olsen import DropoutRegressor

try:
    import torch
except ImportError:
    sys.exit("This example needs PyTorch: pip install torch==2.13.0")


def main(keep: float, steps: int, seed: int) -> None:
    X, y = make_data(seed)
    exact = DropoutRegressor(max_features=keep, rescale=True).fit(X, y)
    start = time.perf_counter()
    weight = train(X - X.mean(axis=0), y - y.mean(), keep, steps, seed)
    seconds = time.perf_counter() - start
    error = np.linalg.norm(weight - exact.coef_) / np.linalg.norm(exact.coef_)
    print(f"{X.shape[0]} rows, {X.shape[1]} columns, keep probability {keep}")
    print("torch       ", np.array2string(weight, precision=4, suppress_small=True))
    print("closed form ", np.array2string(exact.coef_, precision=4, suppress_small=True))
    print(f"relative difference {error:.1e} after {steps} steps, {seconds:.1f} s")
    plain = DropoutRegressor(max_features=1.0).fit(X, y)
    moved = np.linalg.norm(exact.coef_ - plain.coef_) / np.linalg.norm(exact.coef_)
    print(f"for comparison, dropout moves the coefficients away from least squares by {moved:.1e}")
    if error > 0.01:
        sys.exit("torch and the closed form disagree by more than 1 %")


def make_data(seed, n=200, p=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))
    return X, X @ rng.standard_normal(p) + rng.standard_normal(n)


def train(X, y, keep, steps, seed, copies=16):
    """Weights of the layer, averaged over the second half of the steps; every row meets `copies` masks a step."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    rows = torch.from_numpy(np.tile(X, (copies, 1)))
    target = torch.from_numpy(np.tile(y, copies))[:, None]
    model = torch.nn.Sequential(torch.nn.Dropout(1 - keep), torch.nn.Linear(X.shape[1], 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    total = torch.zeros(X.shape[1])
    for step in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(rows), target).backward()
        optimiser.step()
        if step >= steps // 2:
            total += model[1].weight.detach()[0]
    return (total / (steps - steps // 2)).numpy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=float, default=0.7, help="probability to keep an input")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.keep, options.steps, options.seed)
