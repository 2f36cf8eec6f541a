// Starts the console.

import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

import { whenUnauthenticated } from './api/client';
import { makeQueryClient } from './app/queryClient';
import { makeRouter } from './app/router';
import { followOtherTabs, leave } from './app/leave';
import { listenToKeys } from './lib/keys';
import { applyTheme } from './lib/theme';
import './styles/tokens.css';
import './styles/global.css';
import { addAnnouncer } from './ui/announce';

const queryClient = makeQueryClient();
const router = makeRouter(queryClient);

applyTheme();
addAnnouncer();
listenToKeys();
whenUnauthenticated(() => leave(router));
followOtherTabs(router);

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
