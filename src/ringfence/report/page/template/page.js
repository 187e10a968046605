"use strict";
(() => {
  const PAPER = 680; // pixels that fit a printed page
  // What charts are drawn with in the dark: every colour that has too little contrast there has another one.
  const NIGHT = {
    "#ffffff": "#16181d", "#1a1a1a": "#e8e8e8", "#000000": "#f2f2f2", "#555555": "#a8adb5", "#777777": "#a8adb5", "#e3e3e3": "#343a43",
    "#0072B2": "#4aa8e8", "#D55E00": "#f08030", "#009E73": "#20bf90", "#882255": "#d0709c", "#6A3D9A": "#ab8ad8", "#8C510A": "#c88c40",
    "rgba(0, 0, 0, 0.07)": "rgba(255, 255, 255, 0.1)", "rgba(0, 0, 0, 0.15)": "rgba(255, 255, 255, 0.15)",
  };
  const coarse = matchMedia("(pointer: coarse)").matches;
  const night = matchMedia("(prefers-color-scheme: dark)");
  const figures = [...document.querySelectorAll(".chart")].map((place) => {
    const text = place.nextElementSibling.textContent;
    let dark = text; // only whole values are colours
    for (const [day, other] of Object.entries(NIGHT)) dark = dark.replaceAll(`"${day}"`, `"${other}"`);
    return {
      place,
      drawing: JSON.parse(text),
      dark: JSON.parse(dark),
      last: "", // what was drawn last
      drawn: Promise.resolve(), // plotly draws in steps: one drawing waits for the one before
    };
  });

  // As many panels side by side as fit; a chart that is hidden has no width and waits.
  function draw(figure, width, dark = night.matches) {
    const wanted = `${width} ${dark}`;
    if (!width || wanted === figure.last) return;
    figure.last = wanted;
    const drawing = dark ? figure.dark : figure.drawing;
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
    figure.drawn = figure.drawn.then(() => Plotly.react(figure.place, structuredClone(drawing.data), layout, settings));
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
  function drawAgain() {
    for (const figure of figures) if (figure.place.checkVisibility()) draw(figure, figure.place.clientWidth);
  }
  night.addEventListener("change", drawAgain);

  // Paper cannot be folded open, and is white.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".part:not([open])")];
    for (const part of folded) part.open = true;
    for (const figure of figures) if (figure.place.clientWidth) draw(figure, Math.min(PAPER, figure.place.clientWidth), false);
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
    drawAgain();
  });

  // A link to a folded part opens it.
  function unfold() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const part = target && target.closest("details");
    if (part) part.open = true;
  }
  addEventListener("hashchange", unfold);
  unfold();

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
