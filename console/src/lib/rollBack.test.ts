import { expect, test } from 'vitest';

import type { BarredContent, DeploymentObject, Rollout } from '../api/types';
import { left, seconds } from './duration';
import { candidates, lastGood, obstacle } from './rollBack';

const version = (sequence: number, checksum: string, isDeletion = false) =>
  ({ sequence_id: sequence, checksum, is_deletion_marker: isDeletion }) as DeploymentObject;
const barred = (checksum: string) => ({ checksum }) as BarredContent;
const rollout = (sequence: number, state: Rollout['state']) => ({ sequence_id: sequence, state }) as Rollout;

test('a rollback restores the last version that every agent got, as the command line does', () => {
  const versions = [version(6, 'f'), version(5, 'e'), version(4, '', true), version(3, 'c'), version(2, 'f'), version(1, 'a')];
  expect(candidates(versions).map((one) => one.sequence_id)).toEqual([5, 3, 1]);
  const none = { versions, barred: [], rollouts: [] };
  expect(lastGood(none)?.sequence_id).toBe(5);
  expect(lastGood({ ...none, barred: [barred('e')] })?.sequence_id).toBe(3);
  const rollouts = [rollout(3, 'stopped'), rollout(1, 'completed')];
  const history = { versions, barred: [barred('e')], rollouts };
  expect(lastGood(history)?.sequence_id).toBe(1);
  expect(lastGood({ ...none, versions: [version(1, 'a')] })).toBeUndefined();
  const obstacles = versions.map((one) => obstacle(one, history));
  expect(obstacles).toEqual(['same', 'barred', 'same', 'incomplete', 'same', undefined]);
});

test('durations are read and written as on the command line', () => {
  expect(['90s', '30m', '1h30m', '2d', '1w', '1h 5m'].map(seconds)).toEqual([90, 1800, 5400, 172_800, 604_800, 3900]);
  expect(['', 'soon', '5', 'h', '-1h', '1h30'].map(seconds)).toEqual(Array.from({ length: 6 }).fill(undefined));
  expect([0, 59, 3600, 5400, 90_061].map(left)).toEqual(['0s', '59s', '1h', '1h30m', '1d1h']);
});
