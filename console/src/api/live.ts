// One stream for the whole browser.
//
// The broker limits the streams of a caller, and a browser the connections to a host. So a tab reads a stream only
// while it holds a Web Lock. A visible tab takes the lock when it gets the focus; tabs that show the same topic get
// the messages through a BroadcastChannel, and all others poll.

import { send } from './client';
import { ApiError, unreachable } from './problem';
import { project } from './scope';
import { messages, type Message } from './sse';

export type LiveState = 'live' | 'reconnecting' | 'polling';

export interface Listener {
  onMessage: (message: Message) => void;
  onState: (state: LiveState) => void;
}

const LOCK = 'brokkr-stream';
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 30_000;
/** The broker sends at least a comment every 15 s: a connection without any bytes for longer is dead. */
const QUIET_MS = 40_000;
/** The broker has no place for another stream. */
const TOO_MANY_STREAMS = 'BRK2020';

/** A stream that this tab wants, whether it reads it or not. */
export interface Stream {
  path: string;
  listener: Listener;
  /** Hands a message to this tab and to the others. */
  share: (message: Message) => void;
  /** The last message, after which the stream continues without a gap. */
  last: string;
  isRead: boolean;
}

/** Follows a stream, such as `/api/v1/events/stream?agent=eu-1`, until the returned function is called. */
export function follow(path: string, listener: Listener): () => void {
  // Browsers offer locks only to pages with HTTPS, or of localhost.
  if ((navigator.locks as LockManager | undefined) === undefined) {
    listener.onState('polling');
    return () => undefined;
  }
  const ended = new AbortController();
  const channel = new BroadcastChannel(`${LOCK}:${project() ?? ''}:${path}`);
  const share = (message: Message) => {
    listener.onMessage(message);
    channel.postMessage(message);
  };
  const stream: Stream = { path, listener, share, last: '', isRead: false };
  channel.addEventListener('message', ({ data }: MessageEvent<Message>) => {
    stream.last = data.id;
    listener.onMessage(data);
  });
  let turn = new AbortController();
  const takeTurn = () => {
    const isVisible = document.visibilityState === 'visible';
    if (isVisible && stream.isRead) return;
    turn.abort();
    turn = new AbortController();
    if (isVisible) void holdTurn(stream, turn.signal, document.hasFocus());
  };
  takeTurn();
  const options = { signal: ended.signal };
  globalThis.addEventListener('focus', takeTurn, options);
  document.addEventListener('visibilitychange', takeTurn, options);
  return () => {
    ended.abort();
    turn.abort();
    channel.close();
  };
}

/** Holds the lock and reads until the turn is over. If another tab takes the lock, waits for it again. */
async function holdTurn(stream: Stream, turn: AbortSignal, steal: boolean): Promise<void> {
  stream.listener.onState('polling');
  const stolen = new AbortController();
  const signal = AbortSignal.any([turn, stolen.signal]);
  const read = async () => {
    stream.isRead = !turn.aborted;
    await readUntil(signal, stream);
  };
  try {
    // A lock cannot be stolen and waited for at once.
    await navigator.locks.request(LOCK, steal ? { steal } : { signal: turn }, read);
    stream.isRead = false;
  } catch (thrown) {
    stolen.abort();
    stream.isRead = false;
    const isTaken = thrown instanceof DOMException && thrown.name === 'AbortError';
    if (isTaken && !turn.aborted) await holdTurn(stream, turn, false);
  }
}

/** Reads the stream, and opens it again after an error, until the signal. */
export async function readUntil(signal: AbortSignal, stream: Stream): Promise<void> {
  const { listener } = stream;
  let wait = FIRST_RETRY_MS;
  while (!signal.aborted) {
    let next: LiveState = 'reconnecting';
    try {
      await readOnce(signal, stream, () => {
        listener.onState('live');
        wait = FIRST_RETRY_MS;
      });
    } catch (thrown) {
      if (signal.aborted) return;
      // A stream can break at any time.
      const error = thrown instanceof ApiError ? thrown : unreachable();
      // A stream that is refused stays refused: the page polls instead.
      if (!error.isTransient) return listener.onState('polling');
      if (error.code === TOO_MANY_STREAMS) next = 'polling';
    }
    if (signal.aborted) return;
    listener.onState(next);
    // Half of the time is random, so that the tabs of a team do not return all at once.
    const pause = wait / 2 + (Math.random() * wait) / 2;
    await sleep(pause, signal);
    wait = Math.min(wait * 2, LONGEST_RETRY_MS);
  }
}

/** Reads until the stream ends, is silent for too long, or the signal. */
async function readOnce(signal: AbortSignal, stream: Stream, onOpen: () => void): Promise<void> {
  const { path, share, last } = stream;
  const silent = new AbortController();
  const either = { signal: AbortSignal.any([signal, silent.signal]) };
  const end = () => silent.abort(unreachable());
  let timer = setTimeout(end, QUIET_MS);
  const onBytes = () => {
    clearTimeout(timer);
    timer = setTimeout(end, QUIET_MS);
  };
  try {
    const headers = last === '' ? undefined : { 'last-event-id': last };
    const url = new URL(path, globalThis.location.origin);
    const response = await send(new Request(url, { ...either, headers, credentials: 'same-origin' }));
    onOpen();
    const watch = new TransformStream<Uint8Array, Uint8Array>({
      transform: (chunk, controller) => {
        onBytes();
        controller.enqueue(chunk);
      },
    });
    for await (const message of messages((response.body as ReadableStream<Uint8Array>).pipeThrough(watch, either))) {
      stream.last = message.name === 'reset' ? '' : message.id;
      share(message);
    }
  } finally {
    clearTimeout(timer);
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end);
  });
}
