// Makes `shown` say what `fresh` says. Nodes stay where both are built alike, and with them focus, selection, and how far a table is
// scrolled; nothing is measured again but what has changed. For what has no handlers of its own: a fresh node's are dropped.
function repaint(shown, fresh) {
  if (shown.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) {
    if (shown.data !== fresh.data) shown.data = fresh.data;
    return;
  }
  const [before, after] = [[...shown.childNodes], [...fresh.childNodes]];
  if (shown.nodeName !== fresh.nodeName || before.length !== after.length) {
    shown.replaceWith(fresh);
    return;
  }
  for (const { name } of [...shown.attributes]) if (!fresh.hasAttribute(name)) shown.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  before.forEach((node, index) => repaint(node, after[index]));
}
