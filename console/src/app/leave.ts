// The way to the login page and back. When the session ends, nothing that was read stays in the tab.

import { useRouter } from '@tanstack/react-router';

import { onAnnounced, readSession, sessionQuery } from '../api/session';
import { forgetPosition } from '../api/writes';
import { forget } from '../lib/recents';
import type { makeRouter } from './router';

type Router = ReturnType<typeof makeRouter>;

/** Returns to the login page, which comes back to the current page after the next sign-in. */
export function leave(router: Router): void {
  router.options.context.queryClient.clear();
  forget();
  forgetPosition();
  if (router.state.location.pathname === '/login') return;
  void router.navigate({ to: '/login', search: { to: router.state.location.href } });
}

/** Follows what other tabs do: all tabs have the same cookie. */
export function followOtherTabs(router: Router, reload = () => globalThis.location.reload()): () => void {
  return onAnnounced((change) => {
    if (change === 'signed-out') leave(router);
    else void reloadForOther(router, reload);
  });
}

/** Loads the page again if somebody else has signed in: what is shown is that of the former session. */
async function reloadForOther(router: Router, reload: () => void): Promise<void> {
  // The tab that has signed in gets its own announcement, too, and knows the new session.
  const known = router.options.context.queryClient.getQueryData(sessionQuery.queryKey);
  if (known === undefined) return;
  try {
    const { id } = await readSession(null, true);
    if (id !== known.id) reload();
  } catch {
    // The next poll of the session finds out.
  }
}

export function useLeave(): () => void {
  const router = useRouter();
  return () => leave(router);
}

/** Opens the page that was asked for before the sign-in. */
export function enter(router: Pick<Router, 'history' | 'options'>, to: string | undefined): void {
  router.history.replace(router.options.basepath + safeTarget(to));
}

/** Returns the address to open after the sign-in. An address of another site is not followed. */
export function safeTarget(to: string | undefined): string {
  const { origin } = globalThis.location;
  if (to === undefined || !to.startsWith('/') || !URL.canParse(to, origin)) return '/';
  const url = new URL(to, origin);
  return url.origin === origin ? url.pathname + url.search + url.hash : '/';
}
