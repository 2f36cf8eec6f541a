// The matrix of the fleet: read once, then streamed; read again from time to time while another tab has the stream.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useRef, useState } from 'react';

import { fleetSummaryQuery, matrixQuery } from '../../api/fleet';
import type { Message } from '../../api/sse';
import type { FleetChanges, FleetMatrix, MatrixFilter } from '../../api/types';
import { useLiveState, useStream } from '../../app/liveState';
import { applyChanges } from '../../lib/matrix';
import { throttle } from '../../lib/throttle';
import { apiPath } from '../../lib/views';

/** A release changes cells all the time. */
const SUMMARY_MS = 3_000;

export function useMatrix(filter: MatrixFilter) {
  const queries = useQueryClient();
  const path = apiPath('/api/v1/fleet/stream', {}, { ...filter });
  /** The stream that has sent a whole matrix. Without one, it is not certain to what changed cells refer. */
  const known = useRef<string>(undefined);
  const [streamed, setStreamed] = useState<string>();
  const isStreamed = useLiveState() === 'live' && streamed === path;
  const query = matrixQuery(filter, isStreamed);
  // The numbers of the fleet are not streamed. A hidden page reads them when it is shown again.
  const [refreshSummary] = useState(() =>
    throttle(() => {
      if (document.visibilityState === 'hidden') return;
      void queries.invalidateQueries({ queryKey: fleetSummaryQuery().queryKey }, { cancelRefetch: false });
    }, SUMMARY_MS),
  );
  useStream(path, ({ name, data }: Message) => {
    refreshSummary();
    if (name === 'matrix') {
      // The next message may arrive before the next render.
      known.current = path;
      setStreamed(path);
      // A response that is under way is older than this.
      void queries.cancelQueries({ queryKey: query.queryKey });
      queries.setQueryData(query.queryKey, JSON.parse(data) as FleetMatrix);
    } else if (name === 'cells' && known.current === path) {
      const changes = JSON.parse(data) as FleetChanges;
      queries.setQueryData(query.queryKey, (matrix) => matrix && applyChanges(matrix, changes));
    }
  });
  return useQuery(query);
}
