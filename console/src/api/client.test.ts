import { afterEach, expect, onTestFinished, test, vi } from 'vitest';

import { problem, serve } from '../test/broker';
import { json } from '../test/json';
import { api, body, send, whenUnauthenticated } from './client';
import { ApiError, asApiError } from './problem';
import { chooseProject } from './scope';
import { includes, signIn, signOut } from './session';
import { forgetKeys, forgetPosition } from './writes';

afterEach(() => chooseProject(undefined));

const write = () => new Request('https://brokkr.example/api/v1/webhooks/chat/test', { method: 'POST' });

test('only writes prove that the console sends them', async () => {
  const { requests } = serve();
  await body(api.GET('/api/v1/stacks', {}));
  await send(write());
  expect(requests.map((request) => request.headers.get('brokkr-console'))).toEqual([null, '1']);
});

test('a chosen project is the project of each request', async () => {
  const { requests } = serve();
  chooseProject('shop');
  await body(api.GET('/api/v1/stacks', {}));
  expect(requests[0]?.headers.get('brokkr-project')).toBe('shop');
});

const suspend = (reason: string) =>
  new Request('https://brokkr.example/api/v1/stacks/web/suspensions', {
    method: 'POST',
    body: JSON.stringify({ seconds: 60, reason }),
  });

test('a write that is sent again has the same key, until the broker has answered or the dialog is closed', async () => {
  let isCut = true;
  const { requests } = serve(({ method }) => {
    if (method === 'GET') return undefined;
    return isCut ? Promise.reject(new TypeError('Failed to fetch')) : json(201, {});
  });
  await send(suspend('a')).catch(() => undefined);
  await send(suspend('a')).catch(() => undefined);
  await send(suspend('b')).catch(() => undefined);
  isCut = false;
  await send(suspend('a'));
  await send(suspend('a'));
  forgetKeys();
  await send(suspend('b'));
  await body(api.GET('/api/v1/stacks', {}));
  const keys = requests.map((request) => request.headers.get('idempotency-key'));
  const [first, second, other, third, afterAnswer, afterClose, read] = keys;
  expect([second, third]).toEqual([first, first]);
  expect(new Set([first, other, afterAnswer, afterClose]).size).toBe(4);
  expect(read).toBeNull();
});

test('a write over a dead connection fails after a minute', async () => {
  const minute = new AbortController();
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(minute.signal);
  serve(({ signal }) => {
    const { promise, reject } = Promise.withResolvers<Response>();
    signal.addEventListener('abort', () => reject(signal.reason as Error));
    minute.abort(new DOMException('', 'TimeoutError'));
    return promise;
  });
  const error = await send(suspend('d')).catch(asApiError);
  expect(error).toMatchObject({ status: 0, message: 'the broker is not reachable' });
  expect(timeout).toHaveBeenCalledWith(60_000);
});

test('an answer of a proxy is none of the broker', async () => {
  const { requests } = serve(() => new Response('<html>', { status: 504 }));
  await send(suspend('c')).catch(() => undefined);
  await send(suspend('c')).catch(() => undefined);
  const [first, second] = requests.map((request) => request.headers.get('idempotency-key'));
  expect(second).toBe(first);
});

test('a read reflects the writes before it, and a position that is lost is forgotten', async () => {
  onTestFinished(forgetPosition);
  let position = '1768467600.9007199254740993.5.ab';
  let isHeld = false;
  const { requests } = serve(({ method, headers }) => {
    if (method === 'GET') {
      return isHeld && headers.has('brokkr-position') ? problem(503, 'BRK3005', 'on hold') : undefined;
    }
    return new Response('{}', { headers: { 'brokkr-position': position } });
  });
  const positions = () => requests.map((request) => request.headers.get('brokkr-position'));
  await send(write());
  await body(api.GET('/api/v1/stacks', {}));
  expect(positions()).toEqual([null, position]);
  const latest = position;
  position = '1768467600.9007199254740992.5.ab';
  await send(write());
  await body(api.GET('/api/v1/stacks', {}));
  expect(positions().slice(2), 'an older one is not taken over').toEqual([null, latest]);
  isHeld = true;
  await body(api.GET('/api/v1/stacks', {}));
  await body(api.GET('/api/v1/stacks', {}));
  expect(requests).toHaveLength(7);
  expect(positions().at(-1)).toBeNull();
});

test('a problem document becomes an error with code, next step and request id', async () => {
  serve(() => problem(422, 'BRK2004', 'the manifest has an error', 'correct the manifest'));
  const error = await send(write()).catch(asApiError);
  expect(error).toMatchObject({
    status: 422,
    code: 'BRK2004',
    message: 'the manifest has an error',
    next: 'correct the manifest',
    requestId: 'request-1',
    isTransient: false,
  });
});

test('an error page of a proxy is an error, too', async () => {
  const headers = { 'x-request-id': 'from-the-header' };
  serve(() => new Response('<html>', { status: 502, headers }));
  const error = await send(write()).catch(asApiError);
  expect(error).toMatchObject({ status: 502, code: undefined, requestId: 'from-the-header', isTransient: true });
});

test('a broker that is not reachable is a transient error', async () => {
  serve(() => Promise.reject(new TypeError('Failed to fetch')));
  const error = await send(write()).catch(asApiError);
  expect(error).toMatchObject({ status: 0, message: 'the broker is not reachable', isTransient: true });
});

test('a response that breaks off is as transient as none', async () => {
  serve(() => new Response('{"items": [', { headers: { 'content-type': 'application/json' } }));
  const error = await body(api.GET('/api/v1/stacks', {})).catch(asApiError);
  expect(error).toMatchObject({ status: 0, message: 'the broker is not reachable', isTransient: true });
});

test('an error of a script is not one of the broker, and is not tried again', () => {
  const error = asApiError(new TypeError('x is undefined'));
  expect(error).toMatchObject({ message: 'the console failed: x is undefined', isTransient: false });
  expect(error.next).toContain('load the page again');
});

test('a 401 ends the session, except while signing in', async () => {
  const ended = vi.fn();
  whenUnauthenticated(ended);
  serve(() => problem(401, 'BRK1001', 'request is not authenticated'));
  await expect(signIn('wrong')).rejects.toBeInstanceOf(ApiError);
  expect(ended).not.toHaveBeenCalled();
  await expect(body(api.GET('/api/v1/stacks', {}))).rejects.toBeInstanceOf(ApiError);
  expect(ended).toHaveBeenCalledOnce();
});

test('the session routes are called as agreed', async () => {
  const { requests } = serve();
  await signIn('brk_secret');
  await signOut();
  const shown = requests.map(({ method, url, headers, credentials }) => [
    method,
    new URL(url).pathname,
    headers.get('authorization'),
    headers.get('brokkr-console'),
    credentials,
  ]);
  expect(shown).toEqual([
    ['POST', '/api/v1/sessions', 'Bearer brk_secret', '1', 'same-origin'],
    ['DELETE', '/api/v1/sessions/current', null, '1', 'same-origin'],
  ]);
});

test('roles include others as on the broker', () => {
  expect(includes('owner', 'deployer')).toBe(true);
  expect(includes('auditor', 'deployer')).toBe(false);
  expect(includes('admin', 'auditor')).toBe(true);
});
