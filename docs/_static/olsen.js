// Wide code, tables and formulas scroll in their box, never the page. A box that does can be focused and scrolled with
// keys, and its edge fades where there is more.
for (const box of document.querySelectorAll("div.highlight pre, .pst-scrollable-table-container, .math-block")) {
  const look = () => {
    const wide = box.scrollWidth > box.clientWidth + 1;
    if (wide) box.tabIndex = 0;
    box.classList.toggle("more-left", wide && box.scrollLeft > 1);
    box.classList.toggle("more-right", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
}
// Names of the theme's buttons, for those who hear them: what is shown in one, and which section another opens.
for (const button of document.querySelectorAll(".search-button-field")) {
  button.setAttribute("aria-label", button.textContent.replace(/\s+/g, " ").trim() || "Search");
}
for (const toggle of document.querySelectorAll(".bd-sidebar-primary summary")) {
  toggle.setAttribute("aria-label", `Pages of ${toggle.closest("li").querySelector("a").textContent.trim()}`);
}
