import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import type { Rollout } from '../api/types';
import { example } from '../test/broker';
import { boundText, countsText, exactDuration, nextText, stopText, versionsText, waveBars } from './rollout';

const recorded = example<Rollout>('GET /api/v1/rollouts/{sequence_id}');

/** The rollout of the command line's snapshot. */
const payments: Rollout = {
  ...recorded,
  stack_name: 'payments',
  base_sequence_id: 41,
  sequence_id: 42,
  state: 'running',
  wave: 2,
  waves: 5,
  policy: { ...recorded.policy, waves: ['1', '1%', '10%', '50%', '100%'].map((size) => ({ size })) },
  figures: { members: 1204, released: 14, healthy: 11, bad: 0, excused: 0, owed: 1, waiting: 0, in_flight: 2 },
  allowed_bad: 0,
  in_flight_limit: 11,
  pending: { kind: 'healthy', needed: 13 },
};

test('a rollout is described as by the command line', () => {
  const printed = ['rollouts', 'pictures']
    .map((name) => readFileSync(`../crates/cli/src/view/snapshots/brokkr__view__rollouts__tests__${name}.snap`, 'utf8'))
    .join('\n');
  expect(printed).toContain(`next:         ${nextText(payments)}`);
  expect(printed).toContain(countsText(payments));
  expect(printed).toContain(boundText(payments));
  expect(printed).toContain(versionsText(payments));
  const stopped: Rollout = { ...payments, state: 'stopped', stop_reason: { kind: 'too_many_bad', bad: 1, allowed: 0 } };
  expect(printed).toContain(`stopped: ${stopText({ kind: 'too_many_bad', bad: 1, allowed: 0 })}`);
  expect(nextText(stopped), 'nothing comes next').toBeUndefined();
});

test('a wave shows the part of its own agents that has the version', () => {
  const bars = waveBars({ ...payments, wave: 3, figures: { ...payments.figures, released: 67 } });
  expect(bars.map(({ filled }) => filled)).toEqual([1, 1, (67 - 13) / (121 - 13), 0, 0]);
  expect(bars.filter((bar) => bar.isCurrent).map(({ wave }) => wave)).toEqual([3]);
});

test('how far a wave of labelled agents is, is not known', () => {
  expect(waveBars(recorded).map(({ size, filled }) => [size, filled])).toEqual([
    ['1 of region=us', undefined],
    ['100%', 0],
  ]);
});

test('durations are exact', () => {
  expect([0, 7, 435, 3600, 90_061, 172_800].map(exactDuration)).toEqual([
    '0s',
    '7s',
    '7m 15s',
    '1h',
    '1day 1h 1m 1s',
    '2days',
  ]);
});
