// Conditions that are not as they should be, as the command line selects them.

import type { StackStatus } from '../api/types';
import { words } from '../words';

/** Of these, only the first that is not True counts: the later ones follow from it. */
const SHOULD_BE_TRUE = ['Accepted', 'Applied', 'Ready'];
const SHOULD_BE_FALSE = ['Suspended', 'Contested', 'Drifted', 'PrunePending'];

/** Returns the titles of the wrong conditions, such as `not Ready` or `Contested`. */
export function conditions({ conditions: all = [] }: Pick<StackStatus, 'conditions'>): string[] {
  const find = (name: string) => all.find(({ kind }) => kind === name);
  const untrue = SHOULD_BE_TRUE.map(find).find((one) => one !== undefined && one.status !== 'True');
  const present = SHOULD_BE_FALSE.map(find).filter((one) => one?.status === 'True');
  const wrong = [untrue, ...present].filter((one) => one !== undefined);
  return wrong.map(({ kind, status }) => words.conditions[status](kind));
}
