// Draws nothing: its payload is held for another component of the page.

export default function ({ data }) {
  holdForOthers(unpack(data));
  return () => {};
}
