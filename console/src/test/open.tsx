// Opens a page of the console as a browser would.

import { QueryClientProvider } from '@tanstack/react-query';
import { createMemoryHistory, RouterProvider } from '@tanstack/react-router';
import { render } from '@testing-library/react';
import { userEvent } from '@testing-library/user-event';
import { onTestFinished, vi } from 'vitest';

import { whenUnauthenticated } from '../api/client';
import { makeQueryClient } from '../app/queryClient';
import { makeRouter } from '../app/router';
import { followOtherTabs, leave } from '../app/leave';
import { listenToKeys } from '../lib/keys';
import { addAnnouncer } from '../ui/announce';

export function open(path: string) {
  const queryClient = makeQueryClient();
  const history = createMemoryHistory({ initialEntries: [`/ui${path}`] });
  const router = makeRouter(queryClient, history);
  addAnnouncer();
  whenUnauthenticated(() => leave(router));
  onTestFinished(listenToKeys());
  const reload = vi.fn();
  onTestFinished(followOtherTabs(router, reload));
  const view = render(
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>,
  );
  const address = () => history.location.href;
  return { ...view, router, queryClient, user: userEvent.setup(), address, reload };
}
