"""The explorer: its JavaScript computes what Python computes, and its one page is complete.

Scripts of the browser are run by Node.js, where it is installed;
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
from numpy.testing import assert_allclose

import explorer_data
import loops
from olsen import explorer, reference, theory
from olsen.explorer import assembly

SOURCES = Path(explorer.__file__).with_name("page")
SOIL = json.loads(Path(explorer.__file__).with_name("soil.json").read_text(encoding="utf-8"))
INFINITE = math.inf
DESIGNS = ("independent", "balanced")


@pytest.fixture(scope="module")
def node():
    """Evaluate an expression of JavaScript for each of a list of cases, `c`, with all the page's
    modules imported.
    """
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node.js is not installed: the page's formulas are not compared")
    names = ("theory", "random", "least_squares", "simulation", "risk_curves", "state", "own_table")
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
        case_texts = json.dumps([_infinite_as(case, INFINITE, "inf") for case in cases])
        command = [program, "--input-type=module", "-e", script]
        done = subprocess.run(command, input=case_texts, capture_output=True, text=True)
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


def columns_of(cases, *names):
    return (np.array([case[name] for case in cases]) for name in names)


def assert_same(in_javascript, expected, rtol=1e-10, atol=1e-12):
    assert_allclose(np.array(in_javascript, dtype=float), expected, rtol=rtol, atol=atol)


# formulas


LETTERS = cases_of(
    alpha=[0.01, 0.2, 0.4, 0.5, 0.8, 1.0],
    gamma=[0.1, 0.5, 1.0, 2.0, 3.7],
    sigma=[0.0, 0.3, 1.0, 2.5],
    k=[1, 7, 100, INFINITE],
    eta=[0.3, 0.8, 1.0],
)


def test_limits_are_those_of_python(node):
    alpha, gamma, sigma, k, eta = columns_of(LETTERS, "alpha", "gamma", "sigma", "k", "eta")
    in_javascript = node(
        "[theory.limitingBias(c.alpha, c.gamma, c), theory.limitingVariance(c.alpha, c.gamma,"
        " c.sigma, c), theory.limitingRisk(c.alpha, c.gamma, c.sigma, c),"
        " theory.limitingRisk(c.alpha, c.gamma, c.sigma, {...c, mu: 1.3}),"
        " theory.optimalRidgeRisk(c.gamma, c.sigma)]",
        LETTERS,
    )
    bias = theory.limiting_bias(alpha, gamma, k=k, eta=eta)
    risk = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta)
    assert np.isinf(bias).any() and np.isinf(risk).any(), "the peak is among the cases"
    expected = [
        bias,
        theory.limiting_variance(alpha, gamma, sigma, k=k, eta=eta),
        risk,
        theory.limiting_risk(alpha, gamma, sigma, mu=1.3, k=k, eta=eta),
        theory.optimal_ridge_risk(gamma, sigma),
    ]
    assert_same(in_javascript, np.transpose(expected))


def test_limits_of_members_with_a_penalty_are_those_of_python(node):
    cases = [{**case, "lam": lam} for case in LETTERS for lam in (1e-3, 0.2, 4.0)]
    names = ("alpha", "gamma", "sigma", "k", "eta", "lam")
    alpha, gamma, sigma, k, eta, lam = columns_of(cases, *names)
    in_javascript = node(
        "[theory.limitingBias(c.alpha, c.gamma, c), theory.limitingVariance(c.alpha, c.gamma,"
        " c.sigma, c), theory.limitingRisk(c.alpha, c.gamma, c.sigma, {...c, mu: 1.3})]",
        cases,
    )
    options = {"k": k, "eta": eta, "lam": lam}
    expected = [
        theory.limiting_bias(alpha, gamma, **options),
        theory.limiting_variance(alpha, gamma, sigma, **options),
        theory.limiting_risk(alpha, gamma, sigma, mu=1.3, **options),
    ]
    assert_same(in_javascript, np.transpose(expected))


def test_the_curve_over_the_penalty_begins_without_one_and_touches_ridge(node):
    case = {"alpha": 0.8, "gamma": 1, "sigma": 0.7, "k": INFINITE, "eta": 1, "mu": 1}
    (curve,) = node("risk_curves.curvesOver('lam', {...c, size: 'limit'})", [case])
    assert curve["xs"][0] == 0 and curve["risk"][0] == pytest.approx(
        theory.limiting_risk(0.8, 1.0, 0.7)
    )
    assert min(curve["risk"]) == pytest.approx(theory.optimal_ridge_risk(1.0, 0.7), rel=1e-4)


def test_the_best_alpha_is_that_of_python(node):
    # gamma (sigma**2 + 1) = eta does not occur: the risk of one member is then the same for every
    # alpha
    cases = cases_of(
        gamma=[0.1, 0.5, 1.0, 2.0, 3.7],
        sigma=[0.05, 0.3, 1.1, 2.5],
        k=[1, 7, 100, INFINITE],
        eta=[0.3, 1.0],
    )
    in_javascript = node("theory.optimalAlpha(c.gamma, c.sigma, c)", cases)
    gamma, sigma, k, eta = columns_of(cases, "gamma", "sigma", "k", "eta")
    expected = theory.optimal_alpha(gamma, sigma, k=k, eta=eta)
    assert_same(in_javascript, expected, rtol=0, atol=1e-10)


def test_the_best_mu_is_that_of_python(node):
    cases = [
        {**case, "mu": 1, "size": "limit"}
        for case in LETTERS
        if case["alpha"] * case["gamma"] != case["eta"]
    ]
    alpha, gamma, sigma, k, eta = columns_of(cases, "alpha", "gamma", "sigma", "k", "eta")
    expected = theory.optimal_mu(alpha, gamma, sigma, k=k, eta=eta)
    assert_same(node("risk_curves.bestMu(c)", cases), expected, rtol=1e-9, atol=0)


def sizes_of_members(p, tau):
    fractions = {1, p // 5, p // 3, p // 2, (3 * p) // 4, p - 1, p}
    return sorted(fractions | {min(p, tau - 2), min(p, tau), min(p, tau + 2)})


SIZES = [
    {"n": n, "p": p, "m": m, "tau": tau, "design": design, "k": k, "mu": mu}
    for n, p in ((24, 30), (60, 48), (90, 20), (150, 300))
    for tau in sorted({n, n // 2, n - n // 5})
    for m in sizes_of_members(p, tau)
    for design in DESIGNS
    for k, mu in ((1, 1.0), (5, 1.0), (12, 0.8), (INFINITE, 1.3))
]


def finite_risk(case, sigma):
    n, p, m, tau, design, k, mu = case.values()
    risk = theory.minimum_norm_risk if m >= tau + 2 else theory.expected_risk
    return risk(n, p, m, sigma, k=k, n_samples=tau, design=design, mu=mu)


def test_finite_problems_are_those_of_python(node):
    in_javascript = node(
        "[0, 0.9].map(sigma => theory.expectedRisk(c.n, c.p, c.m, sigma, c))", SIZES
    )
    expected = [[finite_risk(case, sigma) for sigma in (0.0, 0.9)] for case in SIZES]
    assert sum(case["m"] >= case["tau"] + 2 for case in SIZES) > 50
    assert np.isinf(expected).any()
    assert_same(in_javascript, expected)


CURVES = {
    "gamma": 1.6,
    "sigma": 0.8,
    "alpha": 0.35,
    "eta": 0.9,
    "k": 6,
    "mu": 1.2,
    "n": 50,
    "design": "balanced",
}


@pytest.mark.parametrize("over", ["alpha", "k"])
def test_curves_are_made_of_points_that_add_up(over, node):
    def drawn(size):
        setting = {**CURVES, "over": over, "size": size}
        (curves,) = node("risk_curves.curvesOver(c.over, c)", [setting])
        xs, risk, bias, variance = (
            np.array(curves[name], dtype=float) for name in ("xs", "risk", "bias", "variance")
        )
        assert len(xs) > 70
        assert np.all(np.diff(xs) > 0)
        assert_same(risk, bias + variance)
        alpha = xs if over == "alpha" else np.full(len(xs), 0.35)
        k = xs if over == "k" else np.full(len(xs), 6)
        return alpha, k, risk, bias

    alpha, k, risk, bias = drawn("limit")
    assert_same(risk, theory.limiting_risk(alpha, 1.6, 0.8, k=k, eta=0.9, mu=1.2))
    finite = np.isfinite(bias)
    unscaled = theory.limiting_bias(alpha, 1.6, k=k, eta=0.9)[finite]
    delta = np.minimum(alpha, 0.9 / 1.6)[finite]
    assert_same(bias[finite], theory.scaled_risk(unscaled, delta, 1.2))

    alpha, k, risk, bias = drawn("finite")
    fixed = {"n": 50, "p": 80, "m": 0, "tau": 45, "design": "balanced", "k": 1, "mu": 1.2}
    letters = zip(np.rint(alpha * 80).astype(int).tolist(), k.tolist(), strict=True)
    cases = [fixed | {"m": m, "k": k} for m, k in letters]
    assert_same(risk, [finite_risk(case, 0.8) for case in cases])
    assert_same(bias, [finite_risk(case, 0.0) for case in cases])


def test_the_best_alpha_that_is_marked_is_the_lowest_point(node):
    limit = {"gamma": 0.9, "sigma": 0.8, "alpha": 0.3, "eta": 1.0, "k": 15, "size": "limit"}
    cases = [{**limit, "n": 120, "mu": mu} for mu in (1.4, 1.0)]
    scaled, plain = node("risk_curves.bestAlpha(c)", cases)
    grid = np.linspace(0, 1, 200_001)
    best = grid[np.argmin(theory.limiting_risk(grid, 0.9, 0.8, k=15, mu=1.4))]
    assert scaled == pytest.approx(best, abs=1e-5)
    assert plain == pytest.approx(theory.optimal_alpha(0.9, 0.8, k=15), abs=1e-10)
    cases = [
        {**limit, "mu": 1.0, "size": "finite", **letters}
        for letters in cases_of(n=[20, 120, 200], gamma=[0.4, 2.0, 4.0], design=DESIGNS)
    ]
    for case, alpha in zip(cases, node("risk_curves.bestAlpha(c)", cases), strict=True):
        n = case["n"]
        p = round(case["gamma"] * n)
        options = {"k": 15, "design": case["design"]}
        sizes = [round(alpha * p), theory.optimal_n_features(n, p, 0.8, **options)]
        marked, lowest = theory.expected_risk(n, p, sizes, 0.8, **options)
        assert marked <= lowest * (1 + 1e-12)


def test_the_best_penalty_that_is_marked_is_the_lowest_point(node):
    """Infinitely many members reach the best ridge regression on the path of equal risk; with too few
    columns no penalty helps; with large noise the best penalty lies beyond the chart.
    """
    plain = {"eta": 1.0, "mu": 1.0, "size": "finite", "n": 60, "design": "independent"}
    cases = [
        {**plain, "gamma": 1.0, "sigma": 0.7, "alpha": 0.8, "k": INFINITE},
        {**plain, "gamma": 4.0, "sigma": 3.0, "alpha": 1.0, "k": INFINITE},
        {**plain, "gamma": 1.0, "sigma": 0.7, "alpha": 0.2, "k": INFINITE},
        {**plain, "gamma": 2.0, "sigma": 0.5, "alpha": 0.5, "k": 20},
    ]
    on_path, beyond, none, of_few = node("risk_curves.bestPenalty(c)", cases)
    assert on_path == pytest.approx(theory.column_path(0.49, 1.0, 0.8), rel=1e-4)
    assert beyond == pytest.approx(theory.optimal_ridge_penalty(4.0, 3.0), rel=1e-4)
    assert none == 0
    grid = np.linspace(0.001, 2, 200_001)
    best = grid[np.argmin(theory.limiting_risk(0.5, 2.0, 0.5, k=20, lam=grid))]
    assert of_few == pytest.approx(best, abs=1e-4)


# simulation


def words(seed, count):
    """Words of the generator, computed with Python's integers."""
    mask = 0xFFFFFFFF
    state = []
    x = seed & mask
    for _ in range(4):
        x = (x + 0x9E3779B9) & mask
        z = ((x ^ (x >> 16)) * 0x21F0AAAD) & mask
        z = ((z ^ (z >> 15)) * 0x735A2D97) & mask
        state.append(z ^ (z >> 15))
    rotate = lambda word, n_bits: ((word << n_bits) | (word >> (32 - n_bits))) & mask  # noqa: E731
    for _ in range(count):
        yield (rotate((state[1] * 5) & mask, 7) * 9) & mask
        t = (state[1] << 9) & mask
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= t
        state[3] = rotate(state[3], 11)


def repeated(count, call):
    """An expression that calls a random generator with seed `c` a number of times."""
    return f"(r => Array.from({{length: {count}}}, () => r.{call}))(new random.Random(c))"


def test_random_words_are_those_of_the_generator(node, seed):
    seeds = [seed, 123456789, -5, 2**31 - 1]
    in_javascript = node(repeated(200, "word()"), seeds)
    assert in_javascript == [list(words(generator_seed, 200)) for generator_seed in seeds]


def test_normal_numbers_and_permutations(node, seed):
    (z,) = np.array(node(repeated(40_000, "normal()"), [seed]))
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 4 * math.sqrt(variance / len(z))
    assert abs(np.mean(z[1:] * z[:-1])) < 4 / math.sqrt(len(z))
    (orders,) = np.array(node(repeated(6000, "permutation(5)"), [seed]))
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    frequency = (orders[:, :, None] == np.arange(5)).mean(axis=0)  # of each number at each place
    assert np.abs(frequency - 0.2).max() < 5 * math.sqrt(0.16 / len(orders))  # the largest of 25


def test_least_squares_are_those_of_numpy(node):
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal(shape) for shape in ((4, 1), (12, 10), (30, 20), (30, 30))]
    designs.append(np.vander(np.linspace(0, 1, 20), 8))  # columns are nearly dependent
    problems = [(A, rng.standard_normal(len(A))) for A in designs]
    expression = (
        "least_squares.leastSquares(c.A.map(column => Float64Array.from(column)),"
        " Float64Array.from(c.y))"
    )
    solutions = node(expression, [{"A": A.T.tolist(), "y": y.tolist()} for A, y in problems])
    for (A, y), solution in zip(problems, solutions, strict=True):
        expected = np.linalg.lstsq(A, y, rcond=None)[0]
        tolerance = 1e-15 * 100 * np.linalg.cond(A) * np.abs(expected).max()
        assert_same(solution, expected, rtol=0, atol=tolerance)


def test_the_simulation_has_the_risk_of_theory(node, seed):
    """The last problem has members that are complements of blocks."""
    problems = [
        {"n": 30, "m": m, "tau": 30, "sigma": sigma, "design": design}
        for m, sigma, design in (
            (8, 1.0, "independent"),
            (10, 0.5, "balanced"),
            (15, 1.0, "balanced"),
        )
    ]
    expression = (
        "(r => { for (let i = 0; i < 500; i++) r.add(); return [r.mean, r.standardError(),"
        f" r.trials]; }})(new simulation.Repetition(c, simulation.signal(20), {seed}, 12))"
    )
    k = np.array([1, 2, 5, 12])
    for problem, (mean, error, trials) in zip(problems, node(expression, problems), strict=True):
        _, m, _, sigma, design = problem.values()
        expected = theory.expected_risk(30, 20, m, sigma, k=k, design=design)
        with loops.case(problem):
            assert trials == 500
            assert np.all(np.abs(np.array(mean)[k - 1] - expected) < 4 * np.array(error)[k - 1])


def test_members_are_subsets_of_the_requested_sizes(node):
    expression = (
        "(e => Array.from({length: 12}, () => e.add()))(new simulation.Ensemble(c,"
        " simulation.signal(20), 3))"
    )
    cases = cases_of(n=[30], m=[1, 5, 8, 15, 20], tau=[22, 30], sigma=[1], design=DESIGNS)
    for case, members in zip(cases, node(expression, cases), strict=True):
        for member in members:
            columns = member["columns"]
            rows = member["rows"]
            assert len(set(columns)) == len(columns) == case["m"]
            assert len(set(rows)) == len(rows) == case["tau"]
            assert set(columns) <= set(range(20))
            assert set(rows) <= set(range(30))
            assert [j for j, value in enumerate(member["coefficients"]) if value] == columns
        if case["design"] == "balanced":
            first, second = (set(member["columns"]) for member in members[:2])
            assert len(first & second) == max(0, 2 * case["m"] - 20), "the smallest overlap"


# links


def test_links_keep_every_setting(node):
    values = {
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
    (decoded,) = node('state.decode("#" + state.encode("risk", c))', [values])
    assert decoded == {"tab": "risk", "values": values}


def test_malformed_links_show_the_defaults(node):
    (starts,) = node('state.starts("risk")', [0])
    malformed = "#tab=risk&gamma=abc&k=&design=<b>&__proto__=1"
    links = ["", "#", "#nonsense", "#tab=none&gamma=", malformed, "#tab=constructor"]
    for link, decoded in zip(links, node("state.decode(c)", links), strict=True):
        assert decoded == {"tab": "risk", "values": starts}, link


def test_values_of_links_are_moved_into_their_range(node):
    links = ["#tab=risk&gamma=1e9&alpha=-4&k=2.4&sigma=inf", "#tab=data&m=81&k=64"]
    risk, data = node("state.decode(c)", links)
    expected = {"gamma": 4, "alpha": 0.01, "k": 2, "sigma": 3}
    assert {name: risk["values"][name] for name in expected} == expected
    assert data == {"tab": "data", "values": {"m": 80, "k": 64}}, "only fitted sizes"


# the data set


FITS = {(fit["m"], fit["k"]): fit for fit in SOIL["fits"]}


def own_table_text(seed, n=45, p=6, separator=","):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((n, p)) + 5, np.ones(n)])
    X[:, 2] = X[:, 0] - X[:, 1]  # depends on two columns
    y = X[:, 0] - X[:, 3] + rng.standard_normal(n)
    names = [*(f"c{j}" for j in range(p)), "target", "constant"]
    table = np.column_stack([X[:, :p], y, X[:, p]])
    rows = [separator.join(f"{value:.6g}" for value in row) for row in table]
    return "\n".join([separator.join(names), *rows, ""])


def test_own_tables_are_fitted_as_numpy_fits_them(node, seed):
    """Errors of the mean of members on rows that were not fitted; constant columns are left out."""
    for separator in ",;\t":
        text = own_table_text(seed, separator=separator)
        ((table, rows, data, sizes, by_size, orders),) = node(
            "(() => { const t = own_table.parseTable(c), rows = own_table.splitRows(t.y.length);"
            " const data = own_table.standardised(t, rows);"
            " const sizes = own_table.ownSizes(data.parts.length, rows.fitted.length);"
            " const orders = sizes.map(m => { const r = new random.Random(m);"
            " return Array.from({length: 64}, () => r.permutation(data.parts.length)); });"
            " return [t, rows, data, sizes, sizes.map(m => own_table.errorsOfSize(data, m)), orders]; })()",
            [text],
        )
        values = np.loadtxt(text.splitlines()[1:], delimiter=separator)
        assert (
            table["target"] == "target" and len(table["columns"]) == 7 and len(data["parts"]) == 6
        )
        y = values[:, 6]
        fitted, predicted = rows["fitted"], rows["predicted"]
        assert sorted(fitted + predicted) == list(range(45)) and len(fitted) == 30
        X = values[:, :6] - values[fitted][:, :6].mean(axis=0)
        centred = y - y[fitted].mean()
        for size, errors, orders_of_size in zip(sizes, by_size, orders, strict=True):
            expected = []
            for k in (1, 4, 16, 64):
                columns = [order[:size] for order in orders_of_size[:k]]
                coef = reference.ensemble(X, centred, columns, [fitted] * k)
                residuals = centred[predicted] - X[predicted] @ coef
                expected.append(np.sqrt(np.mean(residuals**2)))
            assert_allclose(errors, expected, rtol=1e-4)  # cells have six digits


def test_tables_that_the_page_cannot_fit_are_refused_in_words(node):
    texts = ["", "a,b\n1,2\n", "a\n" + "1\n" * 30, "a,b\n" + "1,x\n" * 30, "a,b\n" + "1,\n" * 30]
    messages = node(
        "(() => { try { own_table.parseTable(c); return ''; } catch (e) { return e.message; } })()",
        texts,
    )
    facts = ["no rows", "1 rows", "one column", "“x” is not a number", "Row 1, column b"]
    assert all(fact in message for fact, message in zip(facts, messages, strict=True)), messages


def test_the_page_offers_what_was_exported(node):
    ((sizes, members),) = node("[state.SOIL_SIZES, state.SOIL_MEMBERS]", [0])
    assert (tuple(sizes), tuple(members)) == (explorer_data.SIZES, explorer_data.MEMBERS)
    assert list(FITS) == list(itertools.product(explorer_data.SIZES, explorer_data.MEMBERS))


@pytest.mark.parametrize(("size", "members"), [(5, 64), (20, 16), (80, 4), (160, 1)])
def test_exported_numbers_are_those_of_a_fit_today(size, members):
    """Whole numbers may be rounded to either side."""
    now = explorer_data.fit(size, members)
    stored = FITS[size, members]
    assert now.keys() == stored.keys()
    for name, value in stored.items():
        with loops.case(name):
            if isinstance(value, list):
                assert np.abs(np.subtract(now[name], value)).max() <= 1
                assert np.mean(np.not_equal(now[name], value)) < 0.01
            else:
                rel = 2e-3 if name == "coverage" else 2e-4
                assert now[name] == pytest.approx(value, rel=rel)


def test_exported_errors_follow_from_exported_predictions():
    X, _, _, y = explorer_data.split()
    assert SOIL["observed"] == np.rint(y / explorer_data.UNIT).astype(int).tolist()
    assert SOIL["fitted"] == len(X)
    assert SOIL["ridge"] == explorer_data.ridge_error()
    for (m, k), fit in FITS.items():
        predicted, lower, upper = (
            np.array(fit[name]) * SOIL["unit"] for name in ("predicted", "lower", "upper")
        )
        with loops.case(m, k):
            assert len(fit["effect"]) == 700
            assert np.count_nonzero(fit["effect"]) <= m * k
            assert fit["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - y) ** 2)), abs=1e-3)
            assert fit["width"] == pytest.approx(np.mean(upper - lower), abs=2e-3)
            covered = np.mean((lower <= y) & (y <= upper))
            assert fit["coverage"] == pytest.approx(covered, abs=0.01)


def test_sentences_of_the_page_agree_with_the_data():
    page = (SOURCES / "page.html").read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]*>", "", page).split())
    n_predicted = len(SOIL["observed"])
    assert f"fitted to {SOIL['fitted']} soils; the other {n_predicted} are predicted" in text
    single, averaged = (
        FITS[80, k]["scale"] * np.abs(FITS[80, k]["effect"]).max() for k in (1, 256)
    )
    assert single > 1000
    assert 0.05 < averaged / single < 0.15, "shrink to about a tenth"
    errors = {m: FITS[m, 64]["rmse"] for m in explorer_data.SIZES}
    near_lowest = [m for m, error in errors.items() if error < 1.08 * min(errors.values())]
    assert near_lowest == [40, 80, 160], "near its lowest from 40 to 160"
    for name in ("rmse", "width"):
        assert max(FITS, key=lambda sizes, name=name: FITS[sizes][name]) == (440, 1)


# the page


def test_the_page_is_complete_and_loads_nothing():
    page = explorer.page()
    assert page == explorer.page()
    assert len(page.encode()) < 2_000_000
    assert not re.search(r"\{\{[\w-]+\}\}", page)
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page, "only this script may run"
    assert not re.search(r"^\s*(import|export)\b", script, flags=re.M)


def test_every_module_is_in_the_bundle_and_parses(tmp_path):
    """Names are declared once in all modules together: Node.js would not parse the bundle
    otherwise.
    """
    script = assembly.bundle("main.mjs")
    for path in SOURCES.glob("*.mjs"):
        first_line = path.read_text(encoding="utf-8").splitlines()[0]
        assert first_line in script, f"{path.name} is not used"
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node.js is not installed: the bundle is not parsed")
    bundle = tmp_path / "bundle.mjs"
    bundle.write_text(script, encoding="utf-8")
    done = subprocess.run([program, "--check", bundle], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_writing_replaces_and_makes_folders(tmp_path):
    target = tmp_path / "new" / "page.html"
    assert explorer.write(target) == target
    assert target.read_text(encoding="utf-8") == explorer.page()
    target.write_text("old")
    assert explorer.explore(target, open_browser=False) == target
    assert target.read_text(encoding="utf-8") == explorer.page()
    assert [path.name for path in target.parent.iterdir()] == ["page.html"]


def test_exploring_opens_the_browser_with_the_page(tmp_path):
    """The browser is a script that notes its argument, in a process that has no other browser."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/shown\n')
    browser.chmod(0o755)
    code = "from olsen import explorer; print(explorer.explore())"
    environment = {"BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", code]
    output = subprocess.check_output(command, env=environment, text=True)
    path = Path(output.strip())
    assert path.is_relative_to(tmp_path)
    assert path.read_text(encoding="utf-8") == explorer.page()
    assert (tmp_path / "shown").read_text().strip() == path.as_uri()
