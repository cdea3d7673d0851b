"""
What changes on a GPU?
======================

The array. Give ``fit`` a torch (or cupy) array that lives on a device, tell scikit-learn to follow it, and
everything happens there: the Gram matrix, all members at once by conjugate gradients, the comparison of sizes.
Coefficients stay on the device. This page runs that part where there is a GPU, and says what it would do where there
is none.
"""

# %%
# Two switches
# ------------
#
# scikit-learn follows arrays of other libraries inside ``config_context(array_api_dispatch=True)``, and only if the
# environment variable ``SCIPY_ARRAY_API=1`` was set before SciPy was imported. In a notebook that has been open for
# a while it is too late; set it where Python is started.

import os
import sys

too_late = "scipy" in sys.modules and os.environ.get("SCIPY_ARRAY_API") != "1"
os.environ["SCIPY_ARRAY_API"] = "1"

import matplotlib.pyplot as plt
import numpy as np
import sklearn

from olsen import OLSEnsembleRegressor

try:
    import torch
except ImportError:
    torch = None

if torch is None:
    why_not = "PyTorch is not installed"
elif not torch.cuda.is_available():
    why_not = "PyTorch finds no GPU"
elif too_late:
    why_not = "SciPy was imported before SCIPY_ARRAY_API=1 was set"
else:
    why_not = None
print("a GPU will be used" if why_not is None else f"no GPU here: {why_not}")

# %%
# The same code on both
# ---------------------

N, P, MEMBERS, SIZE = 4000, 2000, 200, 800


def fit_on_device():
    """An ensemble of an array on the GPU, and its largest difference to the one of the
    same array on the CPU.
    """
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.randn(N, P, device="cuda", dtype=torch.float64, generator=generator)
    y = X @ torch.ones(P, device="cuda", dtype=torch.float64) / np.sqrt(P)
    y = y + torch.randn(N, device="cuda", dtype=torch.float64, generator=generator)
    with sklearn.config_context(array_api_dispatch=True):
        model = OLSEnsembleRegressor(MEMBERS, SIZE, random_state=0).fit(X, y)
        prediction = model.predict(X)
    on_host = OLSEnsembleRegressor(MEMBERS, SIZE, random_state=0).fit(
        X.cpu().numpy(), y.cpu().numpy()
    )
    difference = np.abs(model.coef_.cpu().numpy() - on_host.coef_).max()
    return model, prediction, difference


if why_not is None:
    model, prediction, difference = fit_on_device()
    print(
        f"coefficients are on {model.coef_.device}, predictions on "
        f"{prediction.device}; solver {model.solver_}"
    )
    print(f"largest difference to the fit on the CPU: {difference:.1e}")
else:
    print(
        f"would fit {MEMBERS} members of {SIZE} columns to {N} x {P} numbers on "
        "the GPU,"
    )
    print(
        "predict there, and compare the coefficients with the coefficients from the CPU"
    )

# %%
# Does it fit?
# ------------
#
# In double precision a fit takes at its peak about :math:`16 n p` bytes for the data and a centred copy of them,
# :math:`16 p^2` for the Gram matrix and one more like it, and up to 80 bytes for each member and column. This is a
# rule of thumb (heuristic); on a GPU the page prints what was really taken.


def gigabytes(n, p, k):
    return (16 * n * p + 16 * p**2 + 80 * p * k) / 1e9


if why_not is None:
    taken = torch.cuda.max_memory_allocated() / 1e9
    print(
        f"the fit above: {taken:.2f} GB taken, {gigabytes(N, P, MEMBERS):.2f} GB "
        "by the rule"
    )
for p in (1_000, 10_000, 40_000):
    print(
        f"50 000 rows, {p:>6} columns, 1000 members: "
        f"{gigabytes(50_000, p, 1000):5.1f} GB"
    )

figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
columns = np.geomspace(200, 50_000, 100)
for k, colour, style in (
    (100, "#0072B2", "-"),
    (1000, "#E69F00", "--"),
    (10_000, "#D55E00", "-."),
):
    ax.loglog(
        columns,
        gigabytes(50_000, columns, k),
        style,
        color=colour,
        label=f"{k} members",
    )
for size in (8, 24, 80):
    ax.axhline(size, color="0.7", lw=1, zorder=0)
    ax.text(210, size, f"{size} GB", va="bottom", color="0.3", fontsize="small")
ax.set(
    xlabel="columns",
    ylabel="memory on the device (GB)",
    title="50 000 rows in double precision",
)
ax.set_xticks([1000, 10_000, 50_000], ["1000", "10 000", "50 000"])
ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, loc="lower right")
plt.show()
