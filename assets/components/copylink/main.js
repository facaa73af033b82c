// A quiet button that copies a link to the page as it stands, view state included.

const SAID_MS = 2000;

export default function ({ data, parentElement }) {
  const host = parentElement.querySelector(".gb");
  const copy = mounted(parentElement, () => buildCopy(host));
  if (!host.contains(copy.root)) host.replaceChildren(copy.root);
  copy.always = unpack(data).meta.always;
  return () => {
    copy.stop();
    unmount(parentElement);
  };
}

function buildCopy(host) {
  const said = element("span", { class: "note said", role: "status" });
  const button = element("button", { type: "button", class: "copy" }, "Copy link");
  const root = element("div", { class: "copylink" }, button, said);
  const copy = { root, always: {}, stop: () => window.removeEventListener("glassbox:view", listen) };
  const pending = { view: {}, page: "", timer: 0 };
  // What a component has just shown is written into the address a moment later; the link has it already.
  const listen = ({ detail }) => {
    if (pending.page !== window.location.pathname) pending.view = {};
    pending.page = window.location.pathname;
    Object.assign(pending.view, detail);
    window.clearTimeout(pending.timer);
    pending.timer = window.setTimeout(() => (pending.view = {}), 2 * ADDRESS_AFTER_MS);
  };
  window.addEventListener("glassbox:view", listen);
  let timer = 0;
  button.onclick = async () => {
    const view = pending.page === window.location.pathname ? pending.view : {};
    const done = await copied(linkTo(window.location.href, view, copy.always), root);
    said.textContent = done ? "Copied" : "Not allowed here: copy the address instead";
    window.clearTimeout(timer);
    timer = window.setTimeout(() => said.replaceChildren(), SAID_MS);
  };
  return copy;
}

// The address with what is about to be written there, and with the choices that a bare link would leave to the reader's own app.
function linkTo(href, view, always) {
  const url = new URL(href);
  for (const [name, value] of Object.entries(view)) {
    if (value == null) url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  for (const [name, value] of Object.entries(always)) if (!url.searchParams.has(name)) url.searchParams.set(name, value);
  return url.href;
}

async function copied(text, root) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text, root); // no clipboard outside https and localhost
  }
}

function copiedBySelection(text, root) {
  const focused = root.getRootNode().activeElement;
  const field = element("textarea", { class: "unseen", readonly: "", "aria-hidden": "true", tabindex: -1 });
  field.value = text;
  root.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  return done;
}
