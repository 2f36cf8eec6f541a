// How data is cached, and when a failed request is sent again.

import { QueryClient } from '@tanstack/react-query';

import { asApiError } from '../api/problem';

const MOST_RETRIES = 2;

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 2_000,
        retry: (failures, error) => failures < MOST_RETRIES && asApiError(error).isTransient,
        // A cluster of a shop may be offline, but the broker of an internal network is reachable without internet.
        networkMode: 'always',
      },
    },
  });
}
