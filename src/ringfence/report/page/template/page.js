"use strict";
(() => {
  const PAPER = 680; // pixels that fit a printed page
  const coarse = matchMedia("(pointer: coarse)").matches;
  const figures = [...document.querySelectorAll(".chart")].map((place) => ({
    place,
    drawing: JSON.parse(place.nextElementSibling.textContent),
    width: 0, // drawn last
    drawn: Promise.resolve(), // plotly draws in steps: one drawing waits for the one before
  }));

  // As many panels side by side as fit; a chart that is hidden has no width and waits.
  function draw(figure, width) {
    const { place, drawing } = figure;
    if (!width || width === figure.width) return;
    figure.width = width;
    const most = Object.keys(drawing.layouts).length;
    const columns = Math.max(1, Math.min(most, Math.floor(width / drawing.narrowest)));
    const layout = structuredClone(drawing.layouts[columns]);
    layout.width = width;
    layout.dragmode = coarse ? false : "zoom"; // a finger scrolls the page
    const settings = {
      displaylogo: false,
      displayModeBar: coarse ? false : "hover",
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]], // none that sends data away
    };
    figure.drawn = figure.drawn.then(() => Plotly.react(place, drawing.data, layout, settings));
  }

  // Drawing changes heights, so it waits for the next frame: inside the observer it would observe itself.
  const watch = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const entry of entries) {
      const figure = figures.find(({ place }) => place === entry.target);
      draw(figure, Math.floor(entry.contentRect.width));
    }
  }));
  for (const { place, drawing } of figures) {
    if (drawing.widest) place.style.maxWidth = `${drawing.widest}px`;
    watch.observe(place);
  }
  addEventListener("beforeprint", () => {
    for (const figure of figures) if (figure.place.clientWidth) draw(figure, Math.min(PAPER, figure.place.clientWidth));
  });
  addEventListener("afterprint", () => {
    for (const figure of figures) draw(figure, figure.place.clientWidth);
  });

  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => {
      const { place } = figures.find((figure) => figure.place === button.closest("figure").querySelector(".chart"));
      const size = { width: place.clientWidth, height: place.clientHeight, scale: button.dataset.save === "png" ? 3 : 1 };
      Plotly.downloadImage(place, { format: button.dataset.save, filename: place.dataset.name, ...size });
    });
  }

  const toggle = document.getElementById("hide-sensitive");
  function hide(hidden) {
    document.documentElement.classList.toggle("hide-sensitive", hidden);
    toggle.setAttribute("aria-pressed", String(hidden));
  }
  if (toggle) {
    toggle.addEventListener("click", () => hide(toggle.getAttribute("aria-pressed") === "false"));
    if (location.hash === "#hide-sensitive") hide(true); // a page can be opened with them hidden
  }
})();
