"""
Can least squares read a spectrum?
==================================

We predict carbon in 732 soils from near-infrared spectra with 700 wavelengths, of which neighbours are almost equal.
Least squares on all wavelengths has more coefficients than training rows. An average of least-squares fits on a few
wavelengths each does not have this problem, and it tunes itself.
"""

# %%
# The data
# --------
#
# The spectra come with the package; nothing is downloaded.

# sphinx_gallery_thumbnail_number = 3
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon

soil = load_soil_carbon()
X, X_test, y, y_test = train_test_split(soil.data, soil.target, random_state=0)
print(
    f"{len(X)} training spectra, {len(X_test)} test spectra, {X.shape[1]} wavelengths"
)

figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
scale = plt.cm.ScalarMappable(LogNorm(0.3, 10), "viridis")
for row in np.argsort(y)[:: len(y) // 50]:
    ax.plot(soil.wavelength, X[row], color=scale.to_rgba(y[row]), lw=0.8)
bar = figure.colorbar(scale, ax=ax, label="carbon (g/100 g)", extend="both")
bar.set_ticks([0.3, 1, 3, 10], labels=["0.3", "1", "3", "10"])
ax.set(xlabel="wavelength (nm)", ylabel="absorbance")
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Five models
# -----------
#
# All are linear. :class:`olsen.OLSEnsembleRegressorCV` draws wavelengths uniformly and tunes how many there are in a
# member. :class:`olsen.AdaptiveOLSEnsembleRegressor` also has sampling schemes that follow the signal, and weighs the
# schemes by cross-validation.

penalties = np.logspace(-8, 4, 50)
models = {
    "least squares": LinearRegression(),
    "RidgeCV": RidgeCV(alphas=penalties),
    "RidgeCV, standardised": make_pipeline(StandardScaler(), RidgeCV(alphas=penalties)),
    "ensemble, size tuned": OLSEnsembleRegressorCV(random_state=0),
    "adaptive ensemble": AdaptiveOLSEnsembleRegressor(random_state=0),
}
errors = {}
for name, model in models.items():
    model.fit(X, y)
    errors[name] = np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2))
    print(
        f"{name:>22}: R2 {model.score(X_test, y_test):6.3f}, error "
        f"{errors[name]:.3f} g/100 g"
    )

weights = models["adaptive ensemble"].scheme_weights_
print(
    "weights:",
    ", ".join(f"{weight:.0%} {scheme}" for scheme, weight in weights.items()),
)

# %%
# This is a single split: another ``random_state`` changes every number above. The command ``olsen compare`` repeats
# such comparisons over folds.

# %%
# How large should a member be?
# -----------------------------
#
# The curve is the leave-one-out error of ensembles with uniformly drawn wavelengths, for many sizes of their members.
# Small members see too little, and large ones have the problem of least squares on all wavelengths; sizes far beyond
# the minimum are not evaluated. The diamond is the chosen size, with its standard error.

from olsen.displays import TuningCurveDisplay

TuningCurveDisplay.from_estimator(models["ensemble, size tuned"])
plt.show()

# %%
# What it predicts
# ----------------

figure, axes = plt.subplots(
    1, 2, figsize=(6.8, 4.2), layout="constrained", sharex=True, sharey=True
)
limits = [min(0, y_test.min()), 1.05 * y_test.max()]
for ax, name in zip(axes, ("least squares", "adaptive ensemble"), strict=True):
    ax.plot(limits, limits, color="0.6", lw=1)
    ax.plot(y_test, models[name].predict(X_test), "o", ms=4, alpha=0.6, color="#0072B2")
    ax.set(
        xlabel="measured carbon (g/100 g)",
        title=f"{name}: error {errors[name]:.2f} g/100 g",
        aspect="equal",
    )
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("predicted carbon (g/100 g)")
plt.show()
