"""The explorer: its JavaScript says what Python says, and its one page is whole.

What runs in the browser is run here by Node.js, where there is one;
tests/browser/test_explorer_page.py opens the page.
"""

import base64
import hashlib
import itertools
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import explorer_data
import loops
from olsen import explorer, theory
from olsen.explorer import assembly

SOURCES = Path(explorer.__file__).with_name("page")
SOIL = json.loads(Path(explorer.__file__).with_name("soil.json").read_text(encoding="utf-8"))
INFINITE = math.inf
DESIGNS = ("independent", "balanced")


@pytest.fixture(scope="module")
def node():
    """Evaluate an expression of JavaScript for each of a list of cases, `c`, with all the page's
    modules at hand.
    """
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node.js here: the page's formulas are compared where there is one")
    names = ("theory", "random", "least_squares", "simulation", "risk_curves", "state")
    imports = "\n".join(
        f"import * as {name} from {json.dumps((SOURCES / f'{name}.mjs').as_uri())};"
        for name in names
    )

    def run(expression, cases):
        script = f"""{imports}
        import {{ readFileSync }} from "node:fs";
        const read = (_, v) => v === "inf" ? Infinity : v;
        const write = (_, v) => v === Infinity ? "inf" : ArrayBuffer.isView(v) ? Array.from(v) : v;
        const cases = JSON.parse(readFileSync(0, "utf8"), read);
        console.log(JSON.stringify(cases.map(c => {expression}), write));"""
        given = json.dumps([_infinite_as(case, INFINITE, "inf") for case in cases])
        command = [program, "--input-type=module", "-e", script]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return _infinite_as(json.loads(done.stdout), "inf", INFINITE)

    return run


def _infinite_as(value, old, new):
    if isinstance(value, dict):
        return {key: _infinite_as(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_infinite_as(item, old, new) for item in value]
    return new if isinstance(value, type(old)) and value == old else value


def cases_of(**letters):
    return [
        dict(zip(letters, values, strict=True)) for values in itertools.product(*letters.values())
    ]


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


# ---- formulas
# ------------------------------------------------------------------------------------------------------

LETTERS = cases_of(
    alpha=[0.01, 0.2, 0.4, 0.5, 0.8, 1.0],
    gamma=[0.1, 0.5, 1.0, 2.0, 3.7],
    sigma=[0.0, 0.3, 1.0, 2.5],
    k=[1, 7, 100, INFINITE],
    eta=[0.3, 0.8, 1.0],
)


def test_limits_are_those_of_python(node):
    arrays = {name: np.array([case[name] for case in LETTERS]) for name in LETTERS[0]}
    alpha, gamma, sigma = (arrays[name] for name in ("alpha", "gamma", "sigma"))
    rest = {"k": arrays["k"], "eta": arrays["eta"]}
    found = node(
        "[theory.limitingBias(c.alpha, c.gamma, c), theory.limitingVariance(c.alpha, c.gamma,"
        " c.sigma, c), theory.limitingRisk(c.alpha, c.gamma, c.sigma, c),"
        " theory.limitingRisk(c.alpha, c.gamma, c.sigma, {...c, mu: 1.3}),"
        " theory.optimalRidgeRisk(c.gamma, c.sigma)]",
        LETTERS,
    )
    expected = [
        theory.limiting_bias(alpha, gamma, **rest),
        theory.limiting_variance(alpha, gamma, sigma, **rest),
        theory.limiting_risk(alpha, gamma, sigma, **rest),
        theory.limiting_risk(alpha, gamma, sigma, mu=1.3, **rest),
        theory.optimal_ridge_risk(gamma, sigma),
    ]
    assert np.isinf(expected[0]).any() and np.isinf(expected[2]).any(), (
        "the peak is among the cases"
    )
    same(found, np.transpose(expected))


def test_the_best_alpha_is_that_of_python(node):
    # no gamma (sigma**2 + 1) = eta among these: the risk of one member is then the same for every
    # alpha
    cases = cases_of(
        gamma=[0.1, 0.5, 1.0, 2.0, 3.7],
        sigma=[0.05, 0.3, 1.1, 2.5],
        k=[1, 7, 100, INFINITE],
        eta=[0.3, 1.0],
    )
    found = node("theory.optimalAlpha(c.gamma, c.sigma, c)", cases)
    gamma, sigma, k, eta = np.transpose([list(case.values()) for case in cases])
    np.testing.assert_allclose(
        found, theory.optimal_alpha(gamma, sigma, k=k, eta=eta), rtol=0, atol=1e-10
    )


SIZES = [
    {"n": n, "p": p, "m": m, "tau": tau, "design": design, "k": k, "mu": mu}
    for n, p in ((24, 30), (60, 48), (90, 20), (150, 300))
    for tau in sorted({n, n // 2, n - n // 5})
    for m in sorted(
        {
            1,
            p // 5,
            p // 3,
            p // 2,
            (3 * p) // 4,
            p - 1,
            p,
            min(p, tau - 2),
            min(p, tau),
            min(p, tau + 2),
        }
    )
    for design in DESIGNS
    for k, mu in ((1, 1.0), (5, 1.0), (12, 0.8), (INFINITE, 1.3))
]


def finite_risk(case, sigma):
    n, p, m, tau, design, k, mu = case.values()
    if m >= tau + 2:
        return theory.minimum_norm_risk(n, p, m, sigma, k=k, n_samples=tau, design=design, mu=mu)
    return theory.expected_risk(n, p, m, sigma, k=k, n_samples=tau, design=design, mu=mu)


def test_finite_problems_are_those_of_python(node):
    found = node("[0, 0.9].map(sigma => theory.expectedRisk(c.n, c.p, c.m, sigma, c))", SIZES)
    expected = [[finite_risk(case, sigma) for sigma in (0.0, 0.9)] for case in SIZES]
    assert sum(case["m"] >= case["tau"] + 2 for case in SIZES) > 50 and np.isinf(expected).any()
    same(found, expected)


def test_curves_are_made_of_points_that_add_up(node):
    settings = {
        "gamma": 1.6,
        "sigma": 0.8,
        "alpha": 0.35,
        "eta": 0.9,
        "k": 6,
        "mu": 1.2,
        "n": 50,
        "design": "balanced",
    }
    drawn = [
        {**settings, "over": over, "size": size}
        for over in ("alpha", "k")
        for size in ("limit", "finite")
    ]
    for given, curves in zip(drawn, node("risk_curves.curvesOver(c.over, c)", drawn), strict=True):
        over, size = given["over"], given["size"]
        xs, risk, bias, variance = (
            np.array(curves[name], dtype=float) for name in ("xs", "risk", "bias", "variance")
        )
        assert len(xs) > 70 and np.all(np.diff(xs) > 0)
        same(risk, bias + variance)
        alpha, k = (xs, np.full(len(xs), 6)) if over == "alpha" else (np.full(len(xs), 0.35), xs)
        if size == "limit":
            same(risk, theory.limiting_risk(alpha, 1.6, 0.8, k=k, eta=0.9, mu=1.2))
            delta = np.minimum(alpha, 0.9 / 1.6)
            finite = np.isfinite(bias)
            unscaled = theory.limiting_bias(alpha, 1.6, k=k, eta=0.9)
            same(bias[finite], theory.scaled_risk(unscaled[finite], delta[finite], 1.2))
        else:
            letters = zip(np.rint(alpha * 80).astype(int).tolist(), k.tolist(), strict=True)
            cases = [
                {"n": 50, "p": 80, "m": m, "tau": 45, "design": "balanced", "k": k, "mu": 1.2}
                for m, k in letters
            ]
            same(risk, [finite_risk(case, 0.8) for case in cases])
            same(bias, [finite_risk(case, 0.0) for case in cases])


def test_the_best_alpha_that_is_marked_is_the_lowest_point(node):
    base = {
        "gamma": 0.9,
        "sigma": 0.8,
        "alpha": 0.3,
        "eta": 1.0,
        "k": 15,
        "size": "limit",
        "n": 120,
    }
    scaled, plain = node("risk_curves.bestAlpha(c)", [{**base, "mu": 1.4}, {**base, "mu": 1.0}])
    grid = np.linspace(0, 1, 200_001)
    best = grid[np.argmin(theory.limiting_risk(grid, 0.9, 0.8, k=15, mu=1.4))]
    assert scaled == pytest.approx(best, abs=1e-5)
    assert plain == pytest.approx(theory.optimal_alpha(0.9, 0.8, k=15), abs=1e-10)
    cases = [
        {**base, "mu": 1.0, "size": "finite", "n": n, "gamma": gamma, "design": design}
        for n, gamma, design in itertools.product((20, 120, 200), (0.4, 2.0, 4.0), DESIGNS)
    ]
    for case, found in zip(cases, node("risk_curves.bestAlpha(c)", cases), strict=True):
        n, p = case["n"], round(case["gamma"] * case["n"])
        m = theory.optimal_n_features(n, p, 0.8, k=15, design=case["design"])
        risks = theory.expected_risk(n, p, [round(found * p), m], 0.8, k=15, design=case["design"])
        assert risks[0] <= risks[1] * (1 + 1e-12)


def test_the_best_mu_is_that_of_python(node):
    cases = [
        {**case, "mu": 1, "size": "limit"}
        for case in LETTERS
        if case["alpha"] * case["gamma"] != case["eta"]
    ]
    alpha, gamma, sigma, k, eta = np.transpose([list(case.values())[:5] for case in cases])
    expected = theory.optimal_mu(alpha, gamma, sigma, k=k, eta=eta)
    found = np.array(node("risk_curves.bestMu(c)", cases), dtype=float)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# ---- simulation
# ----------------------------------------------------------------------------------------------------


def words(seed, count):
    """The generator again, with Python's integers."""
    mask, state, x = 0xFFFFFFFF, [], seed & 0xFFFFFFFF
    for _ in range(4):
        x = (x + 0x9E3779B9) & mask
        z = ((x ^ (x >> 16)) * 0x21F0AAAD) & mask
        z = ((z ^ (z >> 15)) * 0x735A2D97) & mask
        state.append(z ^ (z >> 15))
    turn = lambda word, places: ((word << places) | (word >> (32 - places))) & mask  # noqa: E731
    for _ in range(count):
        yield (turn((state[1] * 5) & mask, 7) * 9) & mask
        t = (state[1] << 9) & mask
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= t
        state[3] = turn(state[3], 11)


def test_random_words_are_those_of_the_generator(node, seed):
    seeds = [seed, 123456789, -5, 2**31 - 1]
    found = node("(r => Array.from({length: 200}, () => r.word()))(new random.Random(c))", seeds)
    assert found == [list(words(one, 200)) for one in seeds]


def test_normal_numbers_and_permutations(node, seed):
    (numbers,) = node(
        "(r => Array.from({length: 40000}, () => r.normal()))(new random.Random(c))", [seed]
    )
    z = np.array(numbers)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 4 * math.sqrt(variance / len(z))
    assert abs(np.mean(z[1:] * z[:-1])) < 4 / math.sqrt(len(z))
    (orders,) = node(
        "(r => Array.from({length: 6000}, () => r.permutation(5)))(new random.Random(c))", [seed]
    )
    orders = np.array(orders)
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    share = (orders[:, :, None] == np.arange(5)).mean(axis=0)  # of each number at each place
    assert np.abs(share - 0.2).max() < 5 * math.sqrt(0.16 / len(orders))  # the largest of 25


def test_least_squares_are_those_of_numpy(node):
    rng = np.random.default_rng(0)
    shapes = ((4, 1), (12, 10), (30, 20), (30, 30))
    problems = [(rng.standard_normal((n, m)), rng.standard_normal(n)) for n, m in shapes]
    problems.append(
        (np.vander(np.linspace(0, 1, 20), 8), rng.standard_normal(20))
    )  # columns nearly dependent
    expression = (
        "least_squares.leastSquares(c.A.map(column => Float64Array.from(column)),"
        " Float64Array.from(c.y))"
    )
    found = node(expression, [{"A": A.T.tolist(), "y": y.tolist()} for A, y in problems])
    for (A, y), b in zip(problems, found, strict=True):
        expected = np.linalg.lstsq(A, y, rcond=None)[0]
        np.testing.assert_allclose(
            b, expected, rtol=0, atol=1e-15 * 100 * np.linalg.cond(A) * np.abs(expected).max()
        )


def test_the_simulation_has_the_risk_of_theory(node, seed):
    given = [
        {"n": 30, "m": m, "tau": 30, "sigma": sigma, "design": design}
        for m, sigma, design in (
            (8, 1.0, "independent"),
            (10, 0.5, "balanced"),
            (15, 1.0, "balanced"),
        )
    ]  # the last one are complements of blocks
    expression = (
        "(r => { for (let i = 0; i < 500; i++) r.add(); return [r.mean, r.standardError(),"
        f" r.trials]; }})(new simulation.Repetition(c, simulation.signal(20), {seed}, 12))"
    )
    k = np.array([1, 2, 5, 12])
    for one, (mean, error, trials) in zip(given, node(expression, given), strict=True):
        expected = theory.expected_risk(30, 20, one["m"], one["sigma"], k=k, design=one["design"])
        with loops.case(one):
            assert trials == 500
            assert np.all(np.abs(np.array(mean)[k - 1] - expected) < 4 * np.array(error)[k - 1])


def test_members_are_subsets_of_the_sizes_asked_for(node):
    expression = (
        "(e => Array.from({length: 12}, () => e.add()))(new simulation.Ensemble(c,"
        " simulation.signal(20), 3))"
    )
    cases = [
        {"n": 30, "m": m, "tau": tau, "sigma": 1, "design": design}
        for m, tau, design in itertools.product((1, 5, 8, 15, 20), (22, 30), DESIGNS)
    ]
    for case, members in zip(cases, node(expression, cases), strict=True):
        for member in members:
            columns, rows = member["columns"], member["rows"]
            assert (
                len(set(columns)) == len(columns) == case["m"]
                and len(set(rows)) == len(rows) == case["tau"]
            )
            assert set(columns) <= set(range(20)) and set(rows) <= set(range(30))
            assert [j for j, value in enumerate(member["coefficients"]) if value] == columns
        if case["design"] == "balanced":
            first, second = (set(member["columns"]) for member in members[:2])
            assert len(first & second) == max(0, 2 * case["m"] - 20), (
                "the first two share as few as they can"
            )


# ---- links
# ---------------------------------------------------------------------------------------------------------


def test_links_keep_every_setting(node):
    given = {
        "gamma": 0.123456789012345,
        "sigma": 2.5,
        "alpha": 1 / 3,
        "eta": 0.77,
        "k": INFINITE,
        "mu": 0.1,
        "over": "k",
        "size": "finite",
        "n": 77,
        "design": "balanced",
    }
    (text,) = node('state.encode("risk", c)', [given])
    (back,) = node("state.decode('#' + c)", [text])
    assert back == {"tab": "risk", "values": given}


def test_links_that_make_no_sense_show_something_all_the_same(node):
    (starts,) = node('state.starts("risk")', [0])
    odd = "#tab=risk&gamma=abc&k=&design=<b>&__proto__=1"
    for text in ("", "#", "#nonsense", "#tab=none&gamma=", odd, "#tab=constructor"):
        (found,) = node("state.decode(c)", [text])
        assert found == {"tab": "risk", "values": starts}, text
    (found,) = node("state.decode(c)", ["#tab=risk&gamma=1e9&alpha=-4&k=2.4&sigma=inf"])
    assert (found["values"]["gamma"], found["values"]["alpha"], found["values"]["k"]) == (
        4,
        0.01,
        2,
    )
    assert found["values"]["sigma"] == 3
    (found,) = node("state.decode(c)", ["#tab=data&m=81&k=64"])
    assert found == {"tab": "data", "values": {"m": 80, "k": 64}}, "only what was fitted"


# ---- the data set
# --------------------------------------------------------------------------------------------------


def test_the_page_offers_what_was_exported(node):
    sizes, members = node("[state.SOIL_SIZES, state.SOIL_MEMBERS]", [0])[0]
    assert (tuple(sizes), tuple(members)) == (explorer_data.SIZES, explorer_data.MEMBERS)
    assert [(f["m"], f["k"]) for f in SOIL["fits"]] == list(
        itertools.product(explorer_data.SIZES, explorer_data.MEMBERS)
    )


def test_exported_numbers_are_those_of_a_fit_today():
    for size, members in [(5, 64), (20, 16), (80, 4), (160, 1)]:
        now = explorer_data.fit(size, members)
        stored = next(f for f in SOIL["fits"] if (f["m"], f["k"]) == (size, members))
        assert now.keys() == stored.keys()
        for name, value in stored.items():
            with loops.case(size, members, name):
                if isinstance(
                    value, list
                ):  # whole numbers, where rounding may fall on the other side
                    assert np.abs(np.subtract(now[name], value)).max() <= 1
                    assert np.mean(np.not_equal(now[name], value)) < 0.01
                else:
                    assert now[name] == pytest.approx(
                        value, rel=2e-3 if name == "coverage" else 2e-4
                    )


def test_exported_errors_follow_from_exported_predictions():
    X, _, _, y = explorer_data.split()
    assert SOIL["observed"] == np.rint(y / explorer_data.UNIT).astype(int).tolist() and SOIL[
        "fitted"
    ] == len(X)
    assert SOIL["ridge"] == explorer_data.ridge_error()
    for f in SOIL["fits"]:
        predicted, lower, upper = (
            np.array(f[name]) * SOIL["unit"] for name in ("predicted", "lower", "upper")
        )
        assert len(f["effect"]) == 700 and np.count_nonzero(f["effect"]) <= f["m"] * f["k"]
        assert f["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - y) ** 2)), abs=1e-3)
        assert f["width"] == pytest.approx(np.mean(upper - lower), abs=2e-3)
        assert f["coverage"] == pytest.approx(np.mean((lower <= y) & (y <= upper)), abs=0.01)


def test_the_page_tells_the_truth_about_the_data():
    """What its texts say in words, against the numbers it holds."""
    text = re.sub(
        r"\s+", " ", re.sub(r"<[^>]*>", "", (SOURCES / "page.html").read_text(encoding="utf-8"))
    )
    assert (
        f"fitted to {SOIL['fitted']} soils; the other {len(SOIL['observed'])} are predicted" in text
    )
    fits = {(f["m"], f["k"]): f for f in SOIL["fits"]}
    largest = {k: fits[80, k]["scale"] * np.abs(fits[80, k]["effect"]).max() for k in (1, 256)}
    assert largest[1] > 1000 and 0.05 < largest[256] / largest[1] < 0.15, "shrink to about a tenth"
    lowest = min(fits[m, 64]["rmse"] for m in explorer_data.SIZES)
    near = [m for m in explorer_data.SIZES if fits[m, 64]["rmse"] < 1.08 * lowest]
    assert near == [40, 80, 160], "near its lowest from 40 to 160"
    wildest = max(SOIL["fits"], key=lambda f: f["rmse"])
    assert (wildest["m"], wildest["k"]) == (440, 1) and wildest["width"] == max(
        f["width"] for f in SOIL["fits"]
    )


# ---- the page
# ------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_asks_for_nothing():
    page = explorer.page()
    assert page == explorer.page() and len(page.encode()) < 2_000_000
    assert not re.search(r"\{\{[\w-]+\}\}", page) and not re.search(
        r"https?://|@import|url\((?!#)", page
    )
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page, "only this script may run"
    assert not re.search(r"^\s*(import|export)\b", script, flags=re.M)


def test_every_module_is_in_the_bundle_and_parses(tmp_path):
    """Names are declared once in all of them together: Node.js would not parse the bundle
    otherwise.
    """
    script = assembly.bundle("main.mjs")
    for path in SOURCES.glob("*.mjs"):
        assert path.read_text(encoding="utf-8").splitlines()[0] in script, (
            f"{path.name} is used by nobody"
        )
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node.js here to parse the bundle")
    (tmp_path / "bundle.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [program, "--check", tmp_path / "bundle.mjs"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_writing_replaces_and_makes_folders(tmp_path):
    target = tmp_path / "new" / "page.html"
    assert (
        explorer.write(target) == target and target.read_text(encoding="utf-8") == explorer.page()
    )
    target.write_text("old")
    assert explorer.explore(target, open_browser=False) == target
    assert target.read_text(encoding="utf-8") == explorer.page()
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]


def test_exploring_opens_the_browser_with_the_page(tmp_path):
    """A browser of ours, which notes what it is shown, in a process that has no other."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/shown\n')
    browser.chmod(0o755)
    code = "from olsen import explorer; print(explorer.explore())"
    environment = {"BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    path = Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path) and path.read_text(encoding="utf-8") == explorer.page()
    assert (tmp_path / "shown").read_text().strip() == path.as_uri()
