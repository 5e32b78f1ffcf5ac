// The one stream of a page. It is open while the page is seen, and in few windows of a browser at once: a browser has six
// connections to a host, and whoever wants to stop a reply or open a page needs one of them. A window without a place
// reads anew every two seconds, until it gets one: when another leaves, or when somebody goes to it.

const PLACES = 3;
const AGAIN_MS = 2000;

const seen = () => document.visibilityState === "visible";
const nameOf = (place) => `sessiond stream ${place}`;

/** Gives back what was taken when it is called; null where another window has it. `taken`: another has it now. */
function take(name, options, taken) {
  return new Promise((resolve) => {
    const held = (lock) => (lock ? new Promise((giveBack) => resolve(giveBack)) : resolve(null));
    navigator.locks.request(name, options, held).catch(() => {
      resolve(null);
      taken();
    });
  });
}

/** A place for a stream. Without locks (a page of another host without TLS) only the window in front has one. */
async function takePlace(insists, taken) {
  if (!navigator.locks) return document.hasFocus() ? () => {} : null;
  for (let place = 0; place < PLACES; place++) {
    const giveBack = await take(nameOf(place), { ifAvailable: true }, taken);
    if (giveBack) return giveBack;
  }
  return insists() ? take(nameOf(Math.floor(Math.random() * PLACES)), { steal: true }, taken) : null;
}

/**
 * Follows an event stream. `begun` is called when it has begun, again after each gap in it, and every two seconds while
 * it has no place: the time to read what was missed. It is told whether events follow. `lost` is told of a connection
 * that broke. `events`: what is called for events, by name; `*`: for all of them, with the name.
 */
export function follow(address, { begun, lost, events }) {
  let stream = null;
  let giveBack = null;
  let seeking = false;
  let insisting = false;
  let timer = 0;

  function leave() {
    clearTimeout(timer);
    stream?.close();
    giveBack?.();
    [stream, giveBack] = [null, null];
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(seek, AGAIN_MS);
  }

  function taken() {
    leave();
    later();
  }

  /** A browser gives up then: while the daemon starts, or when nobody is signed in any more, which reading tells. */
  function refused() {
    taken();
    begun(false).catch(lost);
  }

  async function seek(insist = false) {
    clearTimeout(timer);
    if (stream || !seen()) return;
    insisting ||= insist;
    if (seeking) return;
    seeking = true;
    giveBack = await takePlace(() => insisting, taken);
    [seeking, insisting] = [false, false];
    if (!seen()) return leave();
    if (giveBack) return open();
    await begun(false).catch(lost);
    later();
  }

  function open() {
    const own = (stream = new EventSource(address));
    const on = (name, act) => own.addEventListener(name, (event) => own === stream && act(event));
    for (const word of ["open", "gap"]) on(word, (event) => event.data !== undefined && begun(true).catch(() => {}));
    on("error", (event) => {
      if (event.data !== undefined) return;
      lost();
      if (own.readyState === EventSource.CLOSED) refused();
    });
    for (const [name, act] of Object.entries(events)) {
      on(name, (event) => event.data !== undefined && act(JSON.parse(event.data)));
    }
  }

  document.addEventListener("visibilitychange", () => (seen() ? seek() : leave()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => event.persisted && seek());
  addEventListener("focus", () => seek(true));
  if (!navigator.locks) addEventListener("blur", taken);
  seek(document.hasFocus());
}
