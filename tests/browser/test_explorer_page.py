"""The explorer in a real browser: curves of theory, links that come back, nothing fetched, usable
by everyone.
"""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from olsen import explorer, theory

pytestmark = pytest.mark.browser

TABS = ("risk", "subsets", "data")
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return explorer.write(tmp_path_factory.mktemp("explorer") / "page.html").as_uri()


@pytest.fixture
def opened(browser, address):
    """Open the page with these settings; whatever the browser complains about or asks for fails the
    test.
    """
    complaints = []
    contexts = []

    def open_page(settings="", *, width=1200, **options):
        context = browser.new_context(viewport={"width": width, "height": 850}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:")) or complaints.append(request.url)
            ),
        )
        page.goto(f"{address}#{settings}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def value_of(page, name):
    """A value that is read off, in full."""
    return float(page.locator(f"#{name}").get_attribute("data-value").replace("Infinity", "inf"))


def move(page, slider, position):
    """Move a slider as a hand does, by an event of the browser; its value, as the field beside it
    says.
    """
    page.locator(f"#{slider}").evaluate(
        "(range, to) => { range.value = to; range.dispatchEvent(new Event('input', {bubbles:"
        " true})); }",
        position,
    )
    text = page.locator(f"#{slider}-field").input_value()
    return np.inf if text == "∞" else float(text)


def curve_of(page, style, chart="risk-chart"):
    """Points of a drawn curve, back in the units of its axes."""
    host = page.locator(f"#{chart}")
    ends = ("x-low", "x-high", "y-low", "y-high")
    low, high, bottom, top = (float(host.get_attribute(f"data-{name}")) for name in ends)
    x0, y0, x1, y1 = map(float, host.get_attribute("data-box").split())
    path = page.locator(f"#{chart} path.line.{style}").get_attribute("d")
    x, y = np.transpose(
        [tuple(map(float, pair)) for pair in re.findall(r"[ML](\S+) ([-\d.]+)", path)]
    )
    return low + (x - x0) / (x1 - x0) * (high - low), bottom + (y1 - y) / (y1 - y0) * (top - bottom)


# ---- values
# --------------------------------------------------------------------------------------------------------


def test_sliders_move_the_values_to_those_of_theory(opened):
    page = opened("tab=risk&gamma=1&sigma=0.7&alpha=0.3&eta=1&k=20&mu=1")
    letters = {"gamma": 1.0, "sigma": 0.7, "alpha": 0.3, "eta": 1.0, "k": 20.0, "mu": 1.0}
    names = ("gamma", "sigma", "alpha", "eta", "k", "mu", "alpha", "k")
    for name, position in zip(names, (150, 120, 40, 90, 3, 130, 170, 23), strict=True):
        letters[name] = move(page, name, position)
        alpha, gamma, sigma, eta, k, mu = (
            letters[name] for name in ("alpha", "gamma", "sigma", "eta", "k", "mu")
        )
        expected = theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta, mu=mu)
        assert value_of(page, "risk-value") == pytest.approx(expected, rel=1e-6), letters
        variance = mu**2 * theory.limiting_variance(alpha, gamma, sigma, k=k, eta=eta)
        assert value_of(page, "variance-value") == pytest.approx(variance, rel=1e-6)
        assert value_of(page, "bias-value") == pytest.approx(expected - variance, rel=1e-6)
        assert value_of(page, "ridge-value") == pytest.approx(
            theory.optimal_ridge_risk(gamma, sigma), rel=1e-6
        )


def test_drawn_curves_and_the_table_are_those_of_theory(opened):
    page = opened("tab=risk&gamma=2&sigma=0.5&eta=0.9&k=20&mu=1&alpha=0.3")
    x, y = curve_of(page, "risk")
    seen = y < float(page.locator("#risk-chart").get_attribute("data-y-high"))
    pixel = 2.0 / 300  # of the axis, about
    assert seen.sum() > 150 and (~seen).sum() > 3, "a peak that leaves the chart"
    beside_peak = (
        np.abs(x - 0.45) > 0.03
    )  # beside the peak a hundredth of a pixel across is many upwards
    drawn = y[seen & beside_peak]
    expected = theory.limiting_risk(x[seen & beside_peak], 2.0, 0.5, k=20, eta=0.9)
    assert_allclose(drawn, expected, rtol=0, atol=pixel / 10)
    page.locator("#risk-numbers summary").click()
    page.locator("#risk-numbers tbody tr").first.wait_for()  # the table is filled by an event
    rows = page.locator("#risk-numbers tbody tr").all()
    values = [
        [cell.get_attribute("data-value") for cell in row.locator("th, td").all()] for row in rows
    ]
    table = np.array(values, dtype=float)
    expected = theory.limiting_risk(table[:, 0], 2.0, 0.5, k=20, eta=0.9)
    assert_allclose(table[:, 1], expected, rtol=1e-6)
    assert_allclose(table[:, 1], table[:, 2] + table[:, 3], rtol=1e-6)


@pytest.mark.parametrize("design", ["independent", "balanced"])
def test_given_sizes_follow_the_exact_formula(opened, design):
    page = opened(
        f"tab=risk&gamma=0.8&sigma=1&alpha=0.3333&eta=1&k=12&mu=1&size=finite&n=60&design={design}"
    )
    expected = theory.expected_risk(60, 48, 16, 1.0, k=12, design=design)
    assert value_of(page, "risk-value") == pytest.approx(expected, rel=1e-6)
    best = page.locator("#best-value")
    m = round(48 * float(best.get_attribute("data-best")))
    risk = theory.expected_risk(60, 48, m, 1.0, k=12, design=design)
    assert float(best.get_attribute("data-risk")) == pytest.approx(risk, rel=1e-6)
    assert m == theory.optimal_n_features(60, 48, 1.0, k=12, design=design)


@pytest.mark.parametrize(("gamma", "k"), [(2.0, 20), (2.0, np.inf), (1.0, np.inf), (1.0, 5)])
def test_a_peak_is_announced_where_there_is_one(opened, gamma, k):
    page = opened(f"tab=risk&gamma={gamma}&sigma=0.7&alpha=0.3&eta=1&k={k}&mu=1")
    infinite = np.isinf(theory.limiting_risk(1 / gamma, gamma, 0.7, k=k))
    expected = "peak: as many columns as rows" if infinite else "as many columns as rows: no peak"
    assert expected in page.locator("#risk-chart text.note").all_text_contents()


def test_curves_over_the_number_of_members(opened):
    page = opened("tab=risk&gamma=1&sigma=0.7&alpha=0.48&k=20&over=k")
    host = page.locator("#risk-chart")
    host.focus()
    for key, k in (("Home", 1), ("ArrowRight", 2), ("End", 1000)):
        page.keyboard.press(key)
        assert host.get_attribute("aria-valuetext") == f"k = {k}"
        assert value_of(page, "risk-value") == pytest.approx(
            theory.limiting_risk(0.48, 1.0, 0.7, k=k), rel=1e-6
        )


def test_curves_over_a_penalty_of_the_members(opened):
    page = opened("tab=risk&gamma=1&sigma=0.7&alpha=0.8&k=20&over=lam")
    page.locator("#risk-chart").focus()
    for key, penalty in (("Home", 0.0), ("End", 4.0)):
        page.keyboard.press(key)
        expected = theory.limiting_risk(0.8, 1.0, 0.7, k=20, lam=penalty)
        assert value_of(page, "risk-value") == pytest.approx(expected, rel=1e-6)
    best = page.locator("#best-value")
    penalty, risk = (float(best.get_attribute(f"data-{name}")) for name in ("best", "risk"))
    assert risk == pytest.approx(theory.limiting_risk(0.8, 1.0, 0.7, k=20, lam=penalty), rel=1e-6)
    _, drawn = curve_of(page, "risk")
    assert risk == pytest.approx(drawn.min(), abs=0.005)
    assert f"{penalty:.3f}" in best.inner_text() and "click" not in page.inner_text(
        "#risk .caption"
    )


@pytest.mark.parametrize("width", [320, 360, 700, 840, 1120, 1250])
def test_the_options_of_a_choice_are_in_one_row(opened, width):
    page = opened("tab=risk&over=lam&size=finite", width=width)
    for tab in TABS:
        page.locator(f"#tab-{tab}").click()
        for choice in page.locator(f"#{tab} .choice:visible").all():
            boxes = [label.bounding_box() for label in choice.locator("label").all()]
            assert len({round(box["y"]) for box in boxes}) == 1, (tab, choice.inner_text())
            host = choice.bounding_box()
            assert boxes[-1]["x"] + boxes[-1]["width"] <= host["x"] + host["width"] + 1


def test_numbers_can_be_typed(opened):
    page = opened("tab=risk")
    typing = (
        ("gamma", "1.2345", 1.2345),
        ("k", "inf", np.inf),
        ("sigma", "99", 3.0),
        ("alpha", "much", 0.3),
    )
    for name, typed, value in typing:
        page.locator(f"#{name}-field").fill(typed)
        page.keyboard.press("Enter")
        assert page.locator(f"#{name}").get_attribute("aria-valuetext") == (
            "∞" if value == np.inf else f"{value:g}"
        )
        page.keyboard.press("Tab")
    expected = theory.limiting_risk(0.3, 1.2345, 3.0)
    assert value_of(page, "risk-value") == pytest.approx(expected, rel=1e-6)


def test_buttons_find_the_best(opened):
    page = opened("tab=risk&gamma=1.5&sigma=0.6&alpha=0.9&k=inf")
    page.locator("#best-alpha").click()
    assert value_of(page, "risk-value") == pytest.approx(
        theory.optimal_ridge_risk(1.5, 0.6), rel=1e-6
    ), "that of ridge"
    move(page, "alpha", 20)
    page.locator("#best-mu").click()
    alpha = float(page.locator("#alpha-field").input_value())
    assert value_of(page, "risk-value") == pytest.approx(
        theory.optimally_scaled_risk(alpha, 1.5, 0.6), rel=1e-6
    )


def test_every_suggestion_shows_what_it_says(opened):
    page = opened("tab=risk")
    risks = {}
    for button in page.locator("#risk-tries button").all():
        button.click()
        risks[button.inner_text()] = value_of(page, "risk-value")
    assert len(risks) == 7
    assert risks["A penalty instead"] == pytest.approx(
        theory.limiting_risk(0.8, 1.0, 0.7), rel=1e-6
    )
    assert risks["Ridge without a penalty"] == pytest.approx(
        theory.optimal_ridge_risk(1.0, 0.7), rel=1e-6
    )
    large = theory.limiting_risk(0.48, 1.0, 0.7)
    assert 1.08 < risks["How many are many?"] / large < 1.12, "about 10 %"
    assert theory.limiting_risk(0.48, 1.0, 0.7, k=200) / large == pytest.approx(1.01, abs=0.002)
    balanced = theory.expected_risk(60, 48, 16, 1.0, k=12, design="balanced")
    assert risks["Members that avoid each other"] == pytest.approx(balanced, rel=1e-6)


# ---- reading off
# ---------------------------------------------------------------------------------------------------


def test_pointer_and_keyboard_read_values_off(opened):
    page = opened("tab=risk&gamma=1&sigma=0.7&alpha=0.3&k=20")
    host = page.locator("#risk-chart")
    said = page.locator("#risk-said")
    box = host.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 100)
    alpha = float(re.search(r"[\d.]+", page.locator("#risk-where").inner_text())[0])
    assert 0.6 < alpha < 0.8
    assert value_of(page, "risk-value") == pytest.approx(
        theory.limiting_risk(alpha, 1.0, 0.7, k=20), rel=1e-2
    )
    page.mouse.move(5, 5)
    assert page.locator("#risk-where").inner_text() == "\N{GREEK SMALL LETTER ALPHA} = 0.300", (
        "back again"
    )
    host.focus()
    page.keyboard.press("Home")
    assert value_of(page, "risk-value") == 1.0, "no columns: nothing is predicted"
    for _ in range(60):
        page.keyboard.press("ArrowRight")
    risk = value_of(page, "risk-value")
    assert risk == pytest.approx(theory.limiting_risk(0.25, 1.0, 0.7, k=20), rel=1e-6)
    page.wait_for_timeout(600)
    assert said.get_attribute("aria-live") == "polite" and f"risk {risk:.3f}" in said.inner_text(
        timeout=1000
    )
    page.keyboard.press("Enter")
    assert page.locator("#alpha-field").input_value() == "0.25", "Enter takes what was read off"
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + 100)
    assert 0.8 < float(page.locator("#alpha-field").input_value()) < 0.95, "and so does a click"


def test_tabs_by_keyboard(opened):
    page = opened()
    page.locator("#tab-risk").focus()
    names = ("subsets", "data", "risk", "data", "risk")
    for key, name in zip(
        ("ArrowRight", "ArrowRight", "ArrowRight", "End", "Home"), names, strict=True
    ):
        page.keyboard.press(key)
        assert page.locator(f"#tab-{name}").get_attribute("aria-selected") == "true"
        assert (
            page.locator(f"#{name}").is_visible()
            and page.locator("[role=tabpanel]:visible").count() == 1
        )
        assert page.evaluate("document.activeElement.id") == f"tab-{name}"


# ---- links
# ---------------------------------------------------------------------------------------------------------


def test_links_bring_the_page_back_as_it_was(opened):
    page = opened()
    for name, position in (
        ("gamma", 77),
        ("sigma", 33),
        ("alpha", 55),
        ("eta", 99),
        ("k", 23),
        ("mu", 88),
    ):
        move(page, name, position)
    page.locator("input[name=size][value=finite]").check()
    page.locator("input[name=design][value=balanced]").check()
    page.wait_for_timeout(400)
    link = page.evaluate("location.hash")
    restored = opened(link.removeprefix("#"))
    for name in ("risk-value", "bias-value", "variance-value", "ridge-value"):
        assert value_of(restored, name) == value_of(page, name)
    restored.wait_for_timeout(400)
    assert restored.evaluate("location.hash") == link
    fields = "[...document.querySelectorAll('#risk .field')].map(field => field.value)"
    assert restored.evaluate(fields) == page.evaluate(fields)


def test_a_link_that_is_pasted_is_followed_and_remembered_by_each_tab(opened):
    page = opened("tab=subsets&m=5&tau=30&sigma=0.5&design=balanced&seed=42")
    assert (
        page.locator("#seed").inner_text() == "42" and page.locator("#m-field").input_value() == "5"
    )
    page.evaluate("location.hash = '#tab=data&m=20&k=4'")
    page.locator("#data").wait_for(state="visible")
    assert page.locator("#size-of-members-field").input_value() == "20"
    page.locator("#tab-subsets").click()
    assert page.locator("#seed").inner_text() == "42" and "seed=42" in page.evaluate(
        "location.hash"
    )


# ---- members
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "design"), [(10, "independent"), (10, "balanced"), (14, "balanced")])
def test_the_live_simulation_agrees_with_theory(opened, m, design):
    page = opened(f"tab=subsets&m={m}&tau=30&sigma=1&design={design}&seed=1")
    page.locator("#repeat").click()
    page.locator("#repetition[data-trials='300']").wait_for(timeout=120_000)
    host = page.locator("#subsets-chart")
    host.focus()
    for key, k in (("Home", 1), ("ArrowRight", 2), ("PageUp", 8), ("End", 60)):
        page.keyboard.press(key)
        assert host.get_attribute("aria-valuetext") == f"k = {k}"
        expected = theory.expected_risk(30, 20, m, 1.0, k=k, design=design)
        assert value_of(page, "theory-risk") == pytest.approx(expected, rel=1e-6)
        error = float(page.locator("#mean-risk").get_attribute("data-error"))
        assert 0 < error < 0.1 and abs(value_of(page, "mean-risk") - expected) < 4 * error, (
            k,
            error,
        )


def test_members_are_drawn_one_by_one_and_played(opened):
    page = opened(
        "tab=subsets&m=6&tau=20&sigma=1&design=independent&seed=3", reduced_motion="reduce"
    )
    figure = page.locator("#subsets-figure")
    risks = []
    for number in (1, 2, 3):
        page.locator("#draw-one").click()
        assert (
            page.locator("#member-words")
            .inner_text()
            .startswith(f"Member {number}: 6 columns, 20 rows.")
        )
        columns = [
            int(j)
            for j in re.search(r"columns ([\d, ]+)", figure.get_attribute("aria-label"))[1].split(
                ", "
            )
        ]
        assert len(columns) == 6 and page.locator("#subsets-figure .strips .now").count() == 6
        assert page.locator("#subsets-figure .cells rect:not(.out)").count() == 20 * 6 + 20
        risks.append(value_of(page, "now-risk"))
    page.locator("#play").click()
    assert page.locator("#member-words").inner_text().startswith("Member 60:"), (
        "at once, where motion is not wanted"
    )
    assert page.locator("#play").inner_text() == "Play" and page.locator("#draw-one").is_disabled()
    last = value_of(page, "now-risk")
    page.locator("#again").click()
    page.locator("#draw-one").click()
    assert value_of(page, "now-risk") == risks[0], "the same seed, the same members"
    page.locator("#play").click()
    assert value_of(page, "now-risk") == last
    page.locator("#new-data").click()
    page.locator("#draw-one").click()
    assert page.locator("#seed").inner_text() == "4" and value_of(page, "now-risk") != risks[0]


def test_play_can_be_paused(opened):
    page = opened("tab=subsets", reduced_motion="no-preference")
    page.locator("#play").click()
    assert page.locator("#play").inner_text() == "Pause"
    page.wait_for_timeout(1200)
    page.locator("#play").click()
    words = page.locator("#member-words").inner_text()
    assert re.match(r"Member [23]:", words), words
    page.wait_for_timeout(1200)
    assert page.locator("#member-words").inner_text() == words


# ---- data
# ----------------------------------------------------------------------------------------------------------


def test_sizes_and_members_change_all_charts(opened):
    page = opened("tab=data&m=80&k=1")
    profile = page.locator("#profile-chart path.line.risk")
    summary = page.locator("#data-summary")
    seen = set()
    for size, members in itertools.product((0, 4, 7), (0, 5)):
        m = move(page, "size-of-members", size)
        k = move(page, "number-of-members", members)
        fit = next(f for f in _soil()["fits"] if (f["m"], f["k"]) == (m, k))
        assert float(summary.get_attribute("data-rmse")) == fit["rmse"]
        misses = page.locator("#scatter-chart circle.missed").count()
        assert page.locator("#scatter-chart circle.soil").count() == 244
        assert misses == pytest.approx(244 * (1 - fit["coverage"]), abs=2.5)
        seen.add(profile.get_attribute("d"))
    assert len(seen) == 6
    page.locator("#profile-chart").focus()
    page.keyboard.press("Home")
    effect = fit["effect"][0] * fit["scale"]
    text = (
        page.locator("#profile-chart")
        .get_attribute("aria-valuetext")
        .replace("\N{MINUS SIGN}", "-")
    )
    assert text.startswith("1100 nm: ") and float(text.split()[-1]) == pytest.approx(
        effect, rel=0.02, abs=0.5
    )


def _soil():
    return json.loads(Path(explorer.__file__).with_name("soil.json").read_text(encoding="utf-8"))


# ---- for everyone
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("tab", TABS)
def test_nothing_overflows_and_every_chart_is_visible(opened, tab, width, scheme):
    page = opened(
        f"tab={tab}&gamma=2&k=20", width=width, color_scheme=scheme
    )  # with a peak in the middle
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown = f"#{tab} .chart:not([hidden] *), #{tab} #subsets-figure"
    for chart in page.locator(shown).all():
        box = chart.bounding_box()
        assert box["width"] > 300 and box["height"] > 200
    overflowing = page.evaluate(
        """tab => [...document.querySelectorAll(`#${tab} svg text`)].filter(text => {
        const inner = text.getBoundingClientRect();
        return inner.width > 0 && (inner.left < -0.5 || inner.right > innerWidth + 0.5);
    }).map(text => text.textContent)""",
        tab,
    )
    assert overflowing == []


def test_light_and_dark_follow_the_system_and_the_switch(opened):
    page = opened(color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    assert page.locator("#theme").inner_text() == "Light"
    page.locator("#theme").click()
    light = page.evaluate(colour)
    assert light != dark and page.locator("#theme").inner_text() == "Dark"
    page.locator("#theme").click()
    assert page.evaluate(colour) == dark
    page.emulate_media(color_scheme="light")
    assert page.evaluate(colour) == dark, "the switch has the last word"
    assert opened(color_scheme="light").evaluate(colour) == light


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [375, 1200])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_no_serious_violation(opened, axe, tab, width, scheme):
    page = opened(f"tab={tab}&size=finite", width=width, color_scheme=scheme, bypass_csp=True)
    if tab == "subsets":
        page.locator("#draw-one").click()
    axe(page)


def test_without_scripts_the_page_says_so(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert "needs JavaScript" in page.locator("noscript").inner_text()
    context.close()


@pytest.mark.parametrize("size", ["limit", "finite"])
def test_a_slider_is_followed_within_a_frame(opened, size, capsys):
    """From the event to the new picture's layout; printed, and bounded far above what a quiet
    machine needs.
    """
    page = opened(f"tab=risk&size={size}&n=200&design=balanced&eta=0.8")
    page.locator("#risk-numbers summary").click()
    times = page.evaluate("""() => {
        const times = [], names = ["gamma", "sigma", "alpha", "eta", "k", "mu"];
        for (let i = 0; i < 200; i++) {
            const range = document.getElementById(names[i % names.length]);
            range.value = (i * 37) % (Number(range.max) + 1);
            const start = performance.now();
            range.dispatchEvent(new Event("input", { bubbles: true }));
            document.getElementById("risk-chart").getBoundingClientRect();
            times.push(performance.now() - start);
        }
        return times;
    }""")
    with capsys.disabled():
        print(
            f"\nslider, {size}: median {np.median(times):.1f} ms, 95 % below"
            f" {np.quantile(times, 0.95):.1f} ms"
        )
    assert len(times) == 200 and np.median(times) < 100


def test_a_table_of_the_reader_is_fitted_in_the_page(opened, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 12))
    y = X[:, :6].sum(axis=1) + rng.standard_normal(90)
    names = ",".join([*(f"c{j}" for j in range(12)), "y"])
    path = tmp_path / "own.csv"
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=names, comments="")
    page = opened("tab=data")
    said = page.locator("#own-words")
    page.locator("#own-file").set_input_files(path)
    playwright.expect(said).to_contain_text("y, 60 rows fitted and 30 predicted")
    assert page.locator("#own-figure").is_visible()
    path.write_text("a,b\n" + "1,x\n" * 30)
    page.locator("#own-file").set_input_files(path)
    playwright.expect(said).to_contain_text("is not a number")
    assert not page.locator("#own-figure").is_visible()
