// The steps of a delivery on one time axis.

import type { Hop, Hops } from '../api/types';
import { HOPS } from './why';

export interface Step {
  hop: Hop;
  /** Parts of the whole time, from 0 to 1. */
  start: number;
  end: number;
  /** Milliseconds since the step before. */
  took: number;
}

/** Returns the steps in the order in which they happened; the report is not a step of the delivery. */
export function waterfall(hops: Hops): { steps: Step[]; total: number } {
  const times = HOPS.filter((hop) => hop !== 'reported')
    .flatMap((hop) => (hops[hop] ? [{ hop, at: Date.parse(hops[hop]) }] : []))
    .toSorted((one, other) => one.at - other.at);
  const first = times[0]?.at ?? 0;
  const total = (times.at(-1)?.at ?? first) - first;
  const part = (at: number) => (total === 0 ? 0 : (at - first) / total);
  const steps = times.map(({ hop, at }, index) => {
    const before = times[index - 1]?.at ?? at;
    return { hop, start: part(before), end: part(at), took: at - before };
  });
  return { steps, total };
}
