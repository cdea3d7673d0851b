"""
How is a prediction explained, and how is it exported?
======================================================

However many members an ensemble has, it predicts with one coefficient for each column. Two things follow. Its SHAP
values are exact and need no sampling: for column j of a row x, coef_j (x_j - mean_j). And as an ONNX model it is a
single linear map.
"""

# %%
# Two models with similar predictions
# -----------------------------------
#
# Progression of diabetes in 442 patients. Total cholesterol and LDL go together.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from olsen import AdaptiveOLSEnsembleRegressor

NAMES = np.array(
    ["age", "sex", "body mass index", "blood pressure", "total cholesterol",
     "LDL", "HDL", "cholesterol / HDL", "log triglycerides", "blood sugar"]
)  # fmt: skip
X, X_new, y, y_new = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
models = {
    "least squares": LinearRegression(),
    "ensemble": AdaptiveOLSEnsembleRegressor(random_state=0),
}
for name, model in models.items():
    print(f"{name:>13}: R2 on new patients {model.fit(X, y).score(X_new, y_new):.3f}")
print(
    "correlation of total cholesterol and LDL: "
    f"{np.corrcoef(X[:, 4], X[:, 5])[0, 1]:.2f}"
)

# %%
# SHAP values
# -----------
#
# The Shapley values add up to the difference of a prediction from the mean prediction (exact). If ``shap`` is
# installed, its ``LinearExplainer`` takes the ensemble as it is; the values are the same.

try:
    import shap
except ImportError:
    shap = None

values = {}
for name, model in models.items():
    values[name] = model.coef_ * (X_new - X.mean(axis=0))
    left = values[name].sum(axis=1) + model.predict(X).mean() - model.predict(X_new)
    print(
        f"{name:>13}: values add up to the prediction, but for {np.abs(left).max():.1e}"
    )
    if shap is not None:
        explained = shap.LinearExplainer(
            model, shap.maskers.Independent(X, max_samples=len(X))
        )(X_new)
        print(
            f"{'':>13}  shap.LinearExplainer differs by "
            f"{np.abs(explained.values - values[name]).max():.1e}"
        )
if shap is None:
    print("shap is not installed: values are computed by hand only")

importance = {name: np.abs(found).mean(axis=0) for name, found in values.items()}
print("total cholesterol and LDL:")
for name, found in importance.items():
    coef = models[name].coef_[4:6].round()
    print(
        f"{name:>13}: coefficients {coef[0]:.0f} and {coef[1]:.0f}, mean sizes "
        f"{found[4]:.1f} and {found[5]:.1f}"
    )

# %%
# Least squares gives the two that go together large values of opposite sign, which cancel. Members that hold only
# one of the two cannot do that, and the ensemble predicts as well with smaller values of both.

order = np.argsort(importance["ensemble"])
places = np.arange(len(order))
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.2), layout="constrained", sharey=True
)
heights = (X_new - X_new.min(axis=0)) / np.ptp(X_new, axis=0)
jitter = np.random.default_rng(0).uniform(-0.3, 0.3, X_new.shape)
shown = left.scatter(
    values["ensemble"][:, order],
    places + jitter,
    c=heights[:, order],
    s=6,
    cmap="viridis",
)
left.axvline(0, color="0.6", lw=1, zorder=0)
left.set_yticks(places, NAMES[order])
left.set(
    xlabel="SHAP value in the ensemble",
    title=f"{len(X_new)} patients not used in the fit",
)
bar = figure.colorbar(shown, ax=left, ticks=[0, 1], label="the patient's own value")
bar.ax.set_yticklabels(["low", "high"])
for shift, name, colour in (
    (0.2, "least squares", "0.6"),
    (-0.2, "ensemble", "#0072B2"),
):
    right.barh(
        places + shift, importance[name][order], height=0.38, color=colour, label=name
    )
right.set(xlabel="mean size of the SHAP value", title="both models, the same patients")
right.legend(frameon=False, loc="lower right")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# ONNX
# ----
#
# ``olsen.onnx.to_onnx`` writes a model for runtimes without Python. It is one node ``Gemm``
# in the precision of the rows, whatever the number of members.

try:
    import onnxruntime

    from olsen import onnx
except ImportError:
    onnxruntime = None

ensemble = models["ensemble"]
if onnxruntime is None:
    print("onnxruntime is not installed: this part is skipped")
else:
    for kind in ("float64", "float32"):
        rows = X_new.astype(kind)
        written = onnx.to_onnx(ensemble, rows)
        session = onnxruntime.InferenceSession(
            written.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        (predicted,) = session.run(None, {"X": rows})
        nodes = ", ".join(node.op_type for node in written.graph.node)
        difference = np.abs(predicted[:, 0] - ensemble.predict(X_new)).max()
        print(f"{kind}: node {nodes}, {written.ByteSize()} bytes")
        print(
            f"{'':>7}  largest difference to predict {difference:.1e}, of "
            f"outcomes up to {y_new.max():.0f}"
        )
