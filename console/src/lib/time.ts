// Times in filters, as on the command line: a time, or a duration before now.

import { notSent } from '../api/problem';
import { words } from '../words';
import { seconds } from './duration';

/** Returns the time for the API; throws if the text is not a time. */
export function timeOf(text: string | undefined, now: number): string | undefined {
  if (text === undefined) return undefined;
  const before = seconds(text);
  const at = before === undefined ? Date.parse(text) : now - before * 1000;
  if (Number.isNaN(at)) throw notSent(words.events.badTime(text));
  return new Date(at).toISOString();
}
