"""
What does dropout converge to?
==============================

Dropout sets random inputs to zero while a model is trained. For a linear model there is no mystery in what comes
out: one coefficient vector that fits the mean over all masks, and it has a closed form. This page trains it in three
ways that agree, and puts the ensemble beside it, in which every mask gets its own least-squares fit.
"""

# %%
# Closed form and training
# ------------------------
#
# With columns kept with probability alpha, the minimiser of the mean loss is known (exact).
# :class:`olsen.DropoutRegressor` computes it, or trains by stochastic gradients with masks drawn at every step.
# ``rescale=True`` is what networks do after training: coefficients times alpha, the mean prediction over masks.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler

from olsen import DropoutRegressor, OLSEnsembleRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 8)) + 0.5 * rng.standard_normal((200, 1))
X = StandardScaler().fit_transform(X)
y = X @ rng.standard_normal(8) + rng.standard_normal(200)
y = y - y.mean()


def distance(found, reference):
    return np.linalg.norm(found - reference) / np.linalg.norm(reference)


ALPHA = 0.7
exact = DropoutRegressor(max_features=ALPHA, rescale=True).fit(X, y)
trained = DropoutRegressor(
    max_features=ALPHA, rescale=True, solver="sgd", tol=0.001, random_state=0
).fit(X, y)
print(
    f"trained for {trained.n_iter_} steps, relative distance "
    f"{distance(trained.coef_, exact.coef_):.1e}"
)
least_squares = LinearRegression().fit(X, y)
print(
    f"for comparison, least squares: {distance(least_squares.coef_, exact.coef_):.1e}"
)

# %%
# In PyTorch
# ----------
#
# ``nn.Dropout(1 - alpha)`` divides what it keeps by alpha, so the weights of the layer behind it converge to the
# rescaled estimator. Every row meets eight masks a step; weights are averaged over the second half of the steps.

try:
    import torch
except ImportError:
    torch = None


def train_with_torch(steps=800, copies=8):
    torch.manual_seed(0)
    rows = torch.from_numpy(np.tile(X, (copies, 1)))
    target = torch.from_numpy(np.tile(y, copies))[:, None]
    layer = torch.nn.Linear(X.shape[1], 1, dtype=torch.float64)
    network = torch.nn.Sequential(torch.nn.Dropout(1 - ALPHA), layer)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    total = torch.zeros(X.shape[1], dtype=torch.float64)
    for step in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(network(rows), target).backward()
        optimiser.step()
        if step >= steps // 2:
            total += layer.weight.detach()[0]
    return (total / (steps - steps // 2)).numpy()


if torch is None:
    print("PyTorch is not installed: this part is skipped")
else:
    print(f"torch: relative distance {distance(train_with_torch(), exact.coef_):.1e}")

# %%
# Ridge regression by another name
# --------------------------------
#
# On standardised columns the rescaled estimator *is* ridge regression with the penalty
# :math:`n (1 - \alpha) / \alpha` (exact).

for alpha in (0.3, 0.7, 0.9):
    dropout = DropoutRegressor(max_features=alpha, rescale=True).fit(X, y)
    ridge = Ridge(alpha=len(X) * (1 - alpha) / alpha).fit(X, y)
    print(
        f"alpha {alpha}: largest difference of coefficients "
        f"{np.abs(dropout.coef_ - ridge.coef_).max():.1e}"
    )

# %%
# Dropout and the ensemble
# ------------------------
#
# The ensemble fits every mask on its own and averages the fits. For the same alpha it is regularised less: its
# limiting penalty is that of dropout times :math:`1 - \alpha p / n` (asymptotic for uncorrelated columns). With 8
# columns and 200 rows the two are close, with 100 columns less so.


def paths(X, y, alphas):
    """Norms of the coefficients of both, relative to least squares."""
    size = np.linalg.norm(LinearRegression().fit(X, y).coef_)
    dropout = [
        DropoutRegressor(alpha, rescale=True).fit(X, y).coef_ for alpha in alphas
    ]
    ensemble = [
        OLSEnsembleRegressor(400, float(alpha), random_state=0).fit(X, y).coef_
        for alpha in alphas
    ]
    return [np.linalg.norm(found, axis=1) / size for found in (dropout, ensemble)]


wide = StandardScaler().fit_transform(rng.standard_normal((200, 100)))
wide_y = wide @ rng.standard_normal(100) / 10 + rng.standard_normal(200)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharey=True)
cases = ((X, y, np.arange(1, 9) / 8), (wide, wide_y, np.arange(1, 11) / 10))
for ax, (rows, target, alphas) in zip(axes, cases, strict=True):
    dropout, ensemble = paths(rows, target, alphas)
    ax.plot(alphas, dropout, "s--", color="#E69F00", label="dropout, rescaled")
    ax.plot(alphas, ensemble, "o-", color="#0072B2", label="ensemble")
    ax.set(
        title=f"{rows.shape[1]} columns, 200 rows",
        xlabel=r"fraction of the columns that is kept, $\alpha$",
    )
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("norm of the coefficients\n(least squares: 1)")
axes[0].legend(frameon=False)
plt.show()
