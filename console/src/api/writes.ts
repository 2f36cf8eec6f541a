// What connects requests: a write that is sent again has the same key, and a read reflects the writes before it.

export const POSITION = 'brokkr-position';

/** The keys of writes without a response so far, by what they send. */
const unanswered = new Map<string, string>();
/** Where the last write is in the history of the broker. Another replica may not have seen it yet. */
let written: string | undefined;

/** Adds the key of a write. The returned function is called when the broker has answered: then it is not sent again. */
export async function addKey(request: Request): Promise<() => void> {
  const content = [request.method, request.url, await request.clone().text()].join('\n');
  const key = unanswered.get(content) ?? crypto.randomUUID();
  unanswered.set(content, key);
  request.headers.set('idempotency-key', key);
  return () => unanswered.delete(content);
}

/** After this, the same content is another write: the person has closed the dialog. */
export function forgetKeys(): void {
  unanswered.clear();
}

export function rememberPosition({ headers }: Response): void {
  const position = headers.get(POSITION);
  if (position !== null && (written === undefined || isLater(position, written))) written = position;
}

/** Adds the position to a read. */
export function addPosition({ headers }: Request): void {
  if (written !== undefined) headers.set(POSITION, written);
}

export function forgetPosition(): void {
  written = undefined;
}

/** Compares `epoch.horizon`, of which each may be larger than the whole numbers of JavaScript. */
function isLater(one: string, other: string): boolean {
  const [[epoch, horizon], [otherEpoch, otherHorizon]] = [partsOf(one), partsOf(other)];
  return epoch === otherEpoch ? horizon >= otherHorizon : epoch > otherEpoch;
}

function partsOf(position: string): [bigint, bigint] {
  const [epoch = '', horizon = ''] = position.split('.');
  return [BigInt(epoch), BigInt(horizon)];
}
