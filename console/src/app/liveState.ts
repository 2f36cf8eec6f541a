// What the pill in the header shows: whether what is on the screen is current.

import { useQueryClient, type Query } from '@tanstack/react-query';
import { useCallback, useEffect, useEffectEvent, useSyncExternalStore } from 'react';

import { follow, type LiveState } from '../api/live';
import type { Message } from '../api/sse';

let state: LiveState = 'polling';
const listeners = new Set<() => void>();

function setState(next: LiveState): void {
  state = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useLiveState(): LiveState {
  return useSyncExternalStore(subscribe, () => state);
}

/** Follows a stream while the page is shown; none if there is no path. */
export function useStream(path: string | undefined, onMessage: (message: Message) => void): void {
  const handle = useEffectEvent(onMessage);
  useEffect(() => {
    if (path === undefined) return undefined;
    const stop = follow(path, { onMessage: (message) => handle(message), onState: setState });
    return () => {
      stop();
      setState('polling');
    };
  }, [path]);
}

/** Returns since when data on the screen is out of date, because requests fail. */
export function useStaleSince(): number | undefined {
  const cache = useQueryClient().getQueryCache();
  const oldest = () => {
    const failing = cache.findAll({ type: 'active', predicate: isFailing });
    const times = failing.map(({ state }) => state.dataUpdatedAt).filter((time) => time > 0);
    return times.length === 0 ? undefined : Math.min(...times);
  };
  const listen = useCallback((listener: () => void) => cache.subscribe(listener), [cache]);
  return useSyncExternalStore(listen, oldest);
}

/** Returns whether the last attempts to read failed, and nothing was read since. */
function isFailing({ state }: Query): boolean {
  return state.status === 'error' || (state.fetchFailureCount > 0 && state.fetchStatus === 'fetching');
}
