// The map of memories, which comes after its page: dragging moves it, the wheel and the buttons change its size, a
// spot says its text.

const drawn = document.getElementById("drawn");

async function fetchMap() {
  const answer = await fetch(`/console/memory/map/drawn${location.search}`).catch(() => null);
  if (answer?.status === 401 || answer?.redirected) return location.reload();
  const html = answer?.ok ? await answer.text().catch(() => null) : null;
  if (html !== null) drawn.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  else drawn.querySelector("p").textContent = drawn.dataset.failed;
  drawn.removeAttribute("aria-busy");
  const map = document.getElementById("map");
  if (map) bringToLife(map);
}

function bringToLife(map) {
  const whole = map.viewBox.baseVal;
  const home = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
  const said = document.getElementById("map-text");
  const view = map.viewBox.baseVal;

  const zoom = (factor, x = view.x + view.width / 2, y = view.y + view.height / 2) => {
    if (!factor) return Object.assign(view, home);
    const width = Math.min(home.width * 2, Math.max(home.width / 20, view.width * factor));
    const by = width / view.width;
    view.x = x - (x - view.x) * by;
    view.y = y - (y - view.y) * by;
    view.width = width;
    view.height *= by;
  };

  const inMap = (event) => {
    const box = map.getBoundingClientRect();
    return [
      view.x + ((event.clientX - box.left) / box.width) * view.width,
      view.y + ((event.clientY - box.top) / box.height) * view.height,
    ];
  };

  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  }

  map.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.15 : 0.87, ...inMap(event));
  }, { passive: false });

  // a press that moves is a drag, and opens nothing
  let from = null;
  let moved = false;
  map.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    moved = false;
  });
  window.addEventListener("pointermove", (event) => {
    if (!from) return;
    const scale = view.width / map.getBoundingClientRect().width;
    const [right, down] = [event.clientX - from[0], event.clientY - from[1]];
    if (!moved && Math.hypot(right, down) < 4) return;
    moved = true;
    view.x -= right * scale;
    view.y -= down * scale;
    from = [event.clientX, event.clientY];
  });
  window.addEventListener("pointerup", () => (from = null));
  map.addEventListener("dragstart", (event) => event.preventDefault());
  map.addEventListener("click", (event) => moved && event.preventDefault(), true);

  const tell = (event) => {
    const spot = event.target.closest("a");
    if (spot) said.textContent = spot.getAttribute("aria-label");
  };
  map.addEventListener("pointerover", tell);
  map.addEventListener("focusin", tell);
}

if (drawn) fetchMap();
