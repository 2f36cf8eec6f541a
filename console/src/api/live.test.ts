import { expect, onTestFinished, test, vi } from 'vitest';

import { example, problem, serve } from '../test/broker';
import { follow, readUntil, type LiveState, type Stream } from './live';
import type { Message } from './sse';

const PATH = '/api/v1/events/stream?agent=eu-1';
const recorded = example<string>('GET /api/v1/events/stream');
const wanted = (parts: Partial<Stream> = {}): Stream => ({
  path: PATH,
  listener: { onMessage: () => undefined, onState: () => undefined },
  share: () => undefined,
  last: '',
  isRead: true,
  ...parts,
});
const stream = (text: string) => new Response(text, { headers: { 'content-type': 'text/event-stream' } });

test('a stream that breaks continues after the last message', async () => {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  const ended = new AbortController();
  const [states, seen]: [LiveState[], string[]] = [[], []];
  const { requests } = serve((request) => {
    if (requests.length === 2) ended.abort();
    return request.url.endsWith(PATH) ? stream(recorded) : undefined;
  });
  const listener = { onMessage: () => undefined, onState: (state: LiveState) => states.push(state) };
  await readUntil(ended.signal, wanted({ listener, share: ({ id }) => seen.push(id) }));
  expect(seen[0]).toBe('1.1042.7');
  expect(requests.map((request) => request.headers.get('last-event-id'))).toEqual([null, '1.1042.7']);
  expect(states.slice(0, 2)).toEqual(['live', 'reconnecting']);
});

test('after a restore of the database, the stream starts from the beginning', async () => {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  const ended = new AbortController();
  const { requests } = serve(() => {
    if (requests.length === 2) ended.abort();
    return stream('id: 1.2.3\nevent: reset\ndata: {}\n\n');
  });
  await readUntil(ended.signal, wanted());
  expect(requests[1]?.headers.get('last-event-id')).toBeNull();
});

test('a stream that is refused is not opened again', async () => {
  const states: LiveState[] = [];
  const { requests } = serve(() => problem(403, 'BRK1004', 'no permission'));
  const listener = { onMessage: () => undefined, onState: (state: LiveState) => states.push(state) };
  await readUntil(new AbortController().signal, wanted({ listener }));
  expect(requests).toHaveLength(1);
  expect(states).toEqual(['polling']);
});

test('a connection without any bytes is given up after 40 seconds; a comment keeps it open', async () => {
  vi.useFakeTimers({ now: Date.now() });
  vi.spyOn(Math, 'random').mockReturnValue(0);
  const ended = new AbortController();
  const states: LiveState[] = [];
  let add: (text: string) => void = () => undefined;
  const { requests } = serve(() => {
    const body = new ReadableStream<Uint8Array>({
      start: (made) => void (add = (text) => made.enqueue(new TextEncoder().encode(text))),
    });
    return new Response(body);
  });
  const listener = { onMessage: () => undefined, onState: (state: LiveState) => states.push(state) };
  const reading = readUntil(ended.signal, wanted({ listener }));
  await vi.advanceTimersByTimeAsync(30_000);
  add(': keep-alive\n\n');
  await vi.advanceTimersByTimeAsync(30_000);
  expect([requests.length, states]).toEqual([1, ['live']]);
  await vi.advanceTimersByTimeAsync(11_000);
  expect([requests.length, states]).toEqual([2, ['live', 'reconnecting', 'live']]);
  expect(requests[0]?.signal.aborted).toBe(true);
  ended.abort();
  await reading;
});

test('without a place for another stream, the page polls and tries again later', async () => {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  const ended = new AbortController();
  const states: LiveState[] = [];
  const { requests } = serve(() => {
    if (requests.length === 2) ended.abort();
    return problem(429, 'BRK2020', 'this replica has too many open streams');
  });
  const listener = { onMessage: () => undefined, onState: (state: LiveState) => states.push(state) };
  await readUntil(ended.signal, wanted({ listener }));
  expect(requests).toHaveLength(2);
  expect(states).toEqual(['polling']);
});

test('without locks, as on plain HTTP, the page polls', () => {
  const { locks } = navigator;
  Object.defineProperty(navigator, 'locks', { configurable: true, value: undefined });
  onTestFinished(() => void Object.defineProperty(navigator, 'locks', { configurable: true, value: locks }));
  const { requests } = serve();
  const states: LiveState[] = [];
  follow(PATH, { onMessage: () => undefined, onState: (state) => states.push(state) })();
  expect([states, requests]).toEqual([['polling'], []]);
});

test('another tab with the same topic gets the messages without a stream of its own', async () => {
  serve(() => stream(`: open\n\n${recorded}`));
  const channel = new BroadcastChannel(`brokkr-stream::${PATH}`);
  const shared = new Promise<Message>((resolve) => {
    channel.addEventListener('message', (event: MessageEvent<Message>) => resolve(event.data));
  });
  const stop = follow(PATH, { onMessage: () => undefined, onState: () => undefined });
  expect((await shared).id).toBe('1.1042.7');
  stop();
  channel.close();
});

test('a tab of which the lock is taken stops reading, waits, and then continues without a gap', async () => {
  /** The requests for the lock, with what another tab does to them. */
  const asked: { steal: boolean; grant: () => Promise<unknown>; take: () => void }[] = [];
  vi.spyOn(navigator.locks, 'request').mockImplementation(((_: string, options: LockOptions, read: () => unknown) => {
    const { promise, reject } = Promise.withResolvers<unknown>();
    const grant = async () => read();
    asked.push({ steal: options.steal === true, grant, take: () => reject(new DOMException('', 'AbortError')) });
    return promise;
  }) as typeof navigator.locks.request);
  vi.spyOn(document, 'hasFocus').mockReturnValue(true);
  const states: LiveState[] = [];
  const open = new ReadableStream({ start: (made) => made.enqueue(new TextEncoder().encode(recorded)) });
  const { requests } = serve(() => new Response(requests.length === 1 ? open : new ReadableStream()));
  const seen = vi.fn();
  const stop = follow(PATH, { onMessage: seen, onState: (state) => states.push(state) });

  expect(asked.map(({ steal }) => steal), 'the tab with the focus does not wait').toEqual([true]);
  void asked[0]?.grant();
  await vi.waitFor(() => expect(seen).toHaveBeenCalledOnce());
  globalThis.dispatchEvent(new Event('focus'));
  expect(asked, 'a tab that reads keeps its stream').toHaveLength(1);

  asked[0]?.take();
  await vi.waitFor(() => expect(asked.map(({ steal }) => steal)).toEqual([true, false]));
  expect(requests[0]?.signal.aborted).toBe(true);
  expect(states.at(-1)).toBe('polling');

  void asked[1]?.grant();
  await vi.waitFor(() => expect(states.at(-1)).toBe('live'));
  expect(requests[1]?.headers.get('last-event-id')).toBe('1.1042.7');
  stop();
});
