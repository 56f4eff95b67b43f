// The server's clock, as far as this page knows it: ages are told by the clock that wrote them.
let ahead = 0;

export function hear(serverSeconds) {
  if (Number.isFinite(serverSeconds)) ahead = serverSeconds - Date.now() / 1000;
}

export const now = () => Date.now() / 1000 + ahead;
