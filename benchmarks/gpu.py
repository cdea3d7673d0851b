"""One GPU against all CPU cores of its machine: members by masked conjugate gradients, sizes from
moments of folds.

Needs the source tree, numpy, scipy, scikit-learn and torch; nothing has to be installed.

    python benchmarks/gpu.py --out gpu.json            # everything, a few minutes
    python benchmarks/gpu.py --goals --out gpu.json    # what a release must reach, under 100 seconds
    python benchmarks/gpu.py --quick --device cpu      # a toy run that shows that the script works

Times are the best of repeats, in seconds, with the device synchronised before and after. "solve"
starts from drawn subsets and includes moments, all members and their sum; "fit" is the whole call
of the estimator, checks and drawing included. Tuned fits are `AdaptiveOLSEnsembleRegressor()` with
its defaults; beside them stands the same k-fold cross-validation on all cores, of one block of
rows. "must" and "aim" are what `fit_s` is to stay below on an H200. ``--goals`` has scikit-learn's `RidgeCV`
on the same device beside each fit; a case that fails leaves its error in its row, and the others go on.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
import traceback
from functools import partial
from pathlib import Path

os.environ.setdefault(
    "SCIPY_ARRAY_API", "1"
)  # scikit-learn asks for it before it follows arrays of other libraries
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import sklearn
import torch
from sklearn.linear_model import RidgeCV

from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, subsets
from olsen._data.rows import RowData
from olsen._execution import threads
from olsen._execution.arrays import HOST, space_of
from olsen._execution.threads import Threads
from olsen._members import masked_cg, on_device

SHAPES = {"large": (40_000, 20_000, 10_000, 500), "many": (800, 400, 120, 20_000)}
THREADS = Threads(threads.count_threads(-1))
QUICK = {"large": (200, 100, 50, 10), "many": (80, 40, 12, 100)}
TUNED = {"wide": (2000, 1000), "long": (100_000, 500)}
QUICK_TUNED = {"wide": (200, 40), "long": (1000, 20)}
GOALS = {"many": {"must_s": 0.025, "aim_s": 0.012}, "wide": {"must_s": 0.5, "aim_s": 0.1}}
GOALS["long"] = GOALS["wide"]
# case: shape, seconds that a fit must take at most
RELEASE_GOALS = {
    "tuned 2000 x 1000": ((2000, 1000), 0.2),
    "tuned 200 000 x 1000": ((200_000, 1000), 0.15),
    "tuned 100 000 x 500": ((100_000, 500), None),
    "20 000 members": ((800, 400, 120, 20_000), 0.02),
}
TOY_RELEASE_GOALS = {
    "tuned 2000 x 1000": ((1100, 20), 0.2),
    "20 000 members": ((80, 40, 12, 100), 0.02),
}
PENALTIES = np.geomspace(1e-3, 1e5, 50)


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def best_of(function, repeats, device):
    """Seconds of the fastest call, and its result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        result = None  # free the last result before the next call allocates its own
        gc.collect()
        synchronise(device)
        start = time.perf_counter()
        result = function()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best, result


def make_data(n, p, device, dtype=torch.float64):
    """Independent Gaussian columns and a dense signal, made where they are used."""
    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn((n, p), generator=generator, device=device, dtype=torch.float64)
    beta = torch.randn(p, generator=generator, device=device, dtype=torch.float64) / p**0.5
    y = X @ beta + torch.randn(n, generator=generator, device=device, dtype=torch.float64)
    return X.to(dtype), y.to(dtype)


def problem_of(X, y):
    space = HOST if isinstance(X, np.ndarray) else space_of(X)
    Y = y[:, None] if space.on_host else space.cast(y)[:, None]
    return RowData(X, Y, None, True, space=space)


def solve(X, y, features):
    """Mean coefficients of all members, from data and drawn subsets."""
    return on_device.solve_sum(problem_of(X, y), features, None, "auto", THREADS).coef[:, 0] / len(
        features
    )


def members(X, y, features):
    """Coefficients (p, k) of a few members, for comparison."""
    problem = problem_of(X, y)
    (batch,) = masked_cg.batches(problem, features)
    return problem.space.get(batch.coef[:, 0, :])


def measure_parts(X, y, features, repeats, device):
    """Where the time goes: moments, then the iteration."""
    moments, _ = best_of(lambda: problem_of(X, y).moments, repeats, device)
    problem = problem_of(X, y)
    _ = problem.moments
    iteration, batches = best_of(
        lambda: list(masked_cg.batches(problem, features)), repeats, device
    )
    return {
        "moments_s": moments,
        "iteration_s": iteration,
        "steps": max(batch.outcome.steps for batch in batches),
        "batches": len(batches),
    }


def run_case(name, shape, device, repeats, dtype):
    n, p, m, k = shape
    X, y = make_data(n, p, device, dtype)
    model = OLSEnsembleRegressor(k, m, random_state=0)
    design = subsets.Design(n, p, 0, m)
    on_host = partial(design.draw, 0, k, THREADS.without_blas)
    drawing, (features, _) = best_of(on_host, 5, torch.device("cpu"))
    solving, coef = best_of(lambda: solve(X, y, features), repeats, device)
    fitting, model = best_of(lambda: model.fit(X, y), repeats, device)
    row = {
        "case": name,
        "shape": shape,
        "dtype": str(dtype),
        "device": str(device),
        "solver": model.solver_,
    }
    row |= {
        "draw_on_host_s": drawing,
        "solve_s": solving,
        "fit_s": fitting,
        "fallbacks": model.n_fallbacks_,
    }
    row |= measure_parts(X, y, features, repeats, device) | GOALS.get(name, {})
    if device.type == "cuda":
        row["peak_gpu_GB"] = torch.cuda.max_memory_allocated(device) / 1e9
        torch.cuda.reset_peak_memory_stats(device)
    return row, (X, y, features, coef)


def run_tuned(name, shape, device, repeats, on_host):
    """A tuned fit with the defaults, and the same by all cores from one block of rows."""
    X, y = make_data(*shape, device)
    first, model = best_of(
        lambda: AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y), 1, device
    )
    fitting, model = best_of(lambda: model.fit(X, y), repeats, device)
    row = {
        "case": name,
        "shape": shape,
        "dtype": "torch.float64",
        "device": str(device),
        "first_fit_s": first,
    }
    row |= {
        "fit_s": fitting,
        "columns_per_member": float(model.inclusion_.sum()),
        "schemes": model.scheme_weights_,
    }
    row |= GOALS[name]
    if on_host:
        block = X.cpu().numpy(), y.cpu().numpy()
        host = AdaptiveOLSEnsembleRegressor(random_state=0, n_jobs=-1)
        row["cpu_blocks_s"], host = best_of(
            lambda: host.fit(lambda: iter([block]), None), 1, torch.device("cpu")
        )
        weights = model.cv_results_["weight"], host.cv_results_["weight"]
        row["same_choice"] = bool(np.allclose(*weights, rtol=0, atol=1e-6))
        row["relative_difference"] = difference(model.coef_.cpu().numpy(), host.coef_)
        row["speed_up"] = row["cpu_blocks_s"] / row["fit_s"]
    return row


def measure_goals(goals, device, repeats):
    """One row for each goal of a release: our fit, RidgeCV on the same device, and the same fit on the
    host.
    """
    X, y = make_data(512, 64, device)  # libraries and kernels are loaded before anything is timed
    AdaptiveOLSEnsembleRegressor(random_state=0).fit(X, y)
    OLSEnsembleRegressor(64, 8, random_state=0).fit(X, y)
    for name, (shape, must) in goals.items():
        row = {"case": name, "shape": shape, "dtype": "torch.float64", "device": str(device)}
        row["must_s"] = must
        try:
            measure_goal(row, shape, device, repeats)
        except Exception:
            row["error"] = traceback.format_exc()
        yield row


def measure_goal(row, shape, device, repeats):
    """Fill in the row of a goal, step by step, so that a failure leaves what was measured before."""
    n, p, *of_members = shape
    X, y = make_data(n, p, device)
    if of_members:
        size, k = of_members
        model = OLSEnsembleRegressor(k, size, random_state=0)
        host = OLSEnsembleRegressor(k, size, random_state=0, n_jobs=-1)
    else:
        model = AdaptiveOLSEnsembleRegressor(random_state=0)
        host = AdaptiveOLSEnsembleRegressor(random_state=0, n_jobs=-1)
    row["first_fit_s"], _ = best_of(lambda: model.fit(X, y), 1, device)
    row["fit_s"], _ = best_of(lambda: model.fit(X, y), repeats, device)
    if row["must_s"] is not None:
        row["reached"] = row["fit_s"] <= row["must_s"]
    row["moments_s"], _ = best_of(lambda: problem_of(X, y).moments, repeats, device)
    ridge = RidgeCV(PENALTIES)
    try:
        ridge.fit(X, y)
        row["RidgeCV_s"], _ = best_of(lambda: ridge.fit(X, y), repeats, device)
    except Exception:
        row["RidgeCV_error"] = traceback.format_exc(limit=-1)
    block = X.cpu().numpy(), y.cpu().numpy()
    if of_members:
        row["host_s"], _ = best_of(lambda: host.fit(*block), 1, torch.device("cpu"))
    else:  # rows in blocks have the folds that rows on a device have
        fit = partial(host.fit, lambda: iter([block]), None)
        row["host_s"], _ = best_of(fit, 1, torch.device("cpu"))
        row["schemes"] = model.scheme_weights_
        weights = model.cv_results_["weight"], host.cv_results_["weight"]
        row["largest_difference_of_weights"] = float(np.abs(weights[0] - weights[1]).max())
    row["relative_difference"] = difference(model.coef_.cpu().numpy(), host.coef_)
    row["equal_to_host"] = row["relative_difference"] <= 1e-8


def compare_with_cpu(row, data, use_numpy):
    """The same solve on all cores, through torch and through NumPy; differences of mean and of
    eight members.
    """
    X, y, features, coef = data
    few = features.slice(0, min(8, len(features)))
    gpu_members = members(X, y, few)
    host = torch.device("cpu")
    X_host, y_host = X.cpu(), y.cpu()
    seconds, cpu_coef = best_of(lambda: solve(X_host, y_host, features), 1, host)
    row["cpu_torch_s"] = seconds
    row["relative_difference_mean"] = difference(coef.cpu().numpy(), cpu_coef.numpy())
    cpu_members = members(X_host, y_host, few)
    row["relative_difference_members"] = max(
        difference(a, b) for a, b in zip(gpu_members.T, cpu_members.T, strict=True)
    )
    if use_numpy and X.dtype == torch.float64:
        A, b = X_host.numpy(), y_host.numpy()
        row["cpu_numpy_s"], _ = best_of(lambda: solve(A, b, features), 1, host)
    row["cpu_best_s"] = min(row["cpu_torch_s"], row.get("cpu_numpy_s", np.inf))
    row["speed_up"] = row["cpu_best_s"] / row["solve_s"]
    return row


def difference(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def header(device):
    about = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
    about |= {
        "scikit-learn": sklearn.__version__,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
    }
    about["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return about


def show(rows):
    for row in rows:
        names = ", ".join("npmk"[: len(row["shape"])])
        print(f"\n{row['case']}: {names} = {row['shape']}, {row['dtype']}, {row['device']}")
        for key, value in row.items():
            if key not in ("case", "shape", "dtype", "device"):
                print(
                    f"  {key:30s} {value:.4g}"
                    if isinstance(value, float)
                    else f"  {key:30s} {value}",
                    flush=True,
                )


def cases(name, shape, device, arguments):
    """Rows of one case: a tuned fit, or many members in double and in single precision."""
    if name in TUNED:
        yield run_tuned(name, shape, device, arguments.repeats, not arguments.no_cpu)
        return
    for dtype in (torch.float64, torch.float32):
        row, data = run_case(name, shape, device, arguments.repeats, dtype)
        if not arguments.no_cpu and (name == "many" or dtype == torch.float64):
            compare_with_cpu(row, data, not arguments.no_numpy)
        del data
        yield row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    parser.add_argument(
        "--goals", action="store_true", help="only what a release must reach, under 100 seconds"
    )
    parser.add_argument(
        "--only", nargs="+", choices=[*SHAPES, *TUNED], default=["many", *TUNED, "large"]
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--no-cpu", action="store_true", help="leave out the comparison with the CPU"
    )
    parser.add_argument("--no-numpy", action="store_true", help="CPU through torch only")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    shapes, rows = QUICK | QUICK_TUNED if arguments.quick else SHAPES | TUNED, []
    about = header(device)
    print(json.dumps(about))
    if arguments.goals:
        goals = TOY_RELEASE_GOALS if arguments.quick else RELEASE_GOALS
        measured = measure_goals(goals, device, arguments.repeats)
    else:
        measured = (
            row for name in arguments.only for row in cases(name, shapes[name], device, arguments)
        )
    with sklearn.config_context(array_api_dispatch=True):
        for row in measured:
            show([row])
            rows.append(row)
            if device.type == "cuda":
                torch.cuda.empty_cache()
            if arguments.out:  # after every case, so that a run cut short leaves what it has
                arguments.out.write_text(json.dumps({"machine": about, "results": rows}, indent=1))
    if arguments.goals:
        print(json.dumps({"machine": about, "results": rows}))


if __name__ == "__main__":
    main()
