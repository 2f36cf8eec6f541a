// The client of the API. Its types are generated from `docs/openapi.json`.

import createClient from 'openapi-fetch';

import type { paths } from './openapi.gen';
import { ApiError, errorOf, unreachable } from './problem';
import { headers } from './scope';
import { addKey, addPosition, forgetPosition, POSITION, rememberPosition } from './writes';

/** What happens when the session is over; set by the router. */
let onUnauthenticated: () => void = () => undefined;

export function whenUnauthenticated(then: () => void): void {
  onUnauthenticated = then;
}

/**
 * Sends a request to the broker; throws an [`ApiError`] unless it succeeds. A 401 ends the session, unless the caller
 * expects one.
 */
export async function send(request: Request, expects401 = false): Promise<Response> {
  for (const [name, value] of headers(request)) request.headers.set(name, value);
  const result = request.method === 'GET' ? await read(request) : await write(request);
  if (result instanceof Response) return result;
  if (result.isUnauthenticated && !expects401) onUnauthenticated();
  throw result;
}

/** The position was not issued by this broker, or its database was restored to a time before. */
const LOST_POSITION = new Set(['BRK1012', 'BRK3005']);

async function read(request: Request): Promise<Response | ApiError> {
  addPosition(request);
  const result = await exchange(request);
  const isLost = result instanceof ApiError && LOST_POSITION.has(result.code ?? '');
  if (!isLost || !request.headers.has(POSITION)) return result;
  forgetPosition();
  request.headers.delete(POSITION);
  return exchange(request);
}

/** A dialog cannot be closed while its request is under way: it ends if the connection is dead. */
const WRITE_MS = 60_000;

async function write(request: Request): Promise<Response | ApiError> {
  const onAnswer = await addKey(request);
  const result = await exchange(new Request(request, { signal: AbortSignal.timeout(WRITE_MS) }));
  // An error without a code is not from the broker: it may do the write nevertheless.
  if (result instanceof Response || result.code !== undefined) onAnswer();
  if (result instanceof Response) rememberPosition(result);
  return result;
}

/** Returns the response, or the error that it contains. */
async function exchange(request: Request): Promise<Response | ApiError> {
  let response: Response;
  try {
    response = await globalThis.fetch(request);
  } catch (thrown) {
    if (isAbort(thrown)) throw thrown;
    return unreachable();
  }
  return response.ok ? response : errorOf(response);
}

export const api = createClient<paths>({
  baseUrl: globalThis.location.origin,
  credentials: 'same-origin',
  fetch: (request) => send(request),
});

/** Returns the body of a success. [`send`] throws for everything else. */
export async function body<T>(result: Promise<{ data?: T }>): Promise<T> {
  const { data } = await received(result);
  if (data === undefined) throw unreachable();
  return data;
}

/** Reads the body of a response: the connection can also break there. */
async function received<T>(reading: Promise<T>): Promise<T> {
  try {
    return await reading;
  } catch (thrown) {
    throw isAbort(thrown) || thrown instanceof ApiError ? thrown : unreachable();
  }
}

/** Returns whether the caller no longer wants the response. */
function isAbort(thrown: unknown): boolean {
  return thrown instanceof DOMException && thrown.name === 'AbortError';
}
