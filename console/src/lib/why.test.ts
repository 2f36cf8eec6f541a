import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

import type { Hops, StackWhy } from '../api/types';
import { whyText } from './why';

const now = Date.parse('2026-03-01T12:00:00Z');
const ago = (seconds: number) => new Date(now - seconds * 1000).toISOString();

/** The first output of each block of the command line's snapshot, which is that of 80 columns. */
function printed(): string[] {
  const file = '../crates/cli/src/view/snapshots/brokkr__view__why__tests__a_stack_on_an_agent.snap';
  return readFileSync(file, 'utf8')
    .split('# 80 columns\n')
    .slice(1)
    .map((block) => block.split('\n# ')[0] as string);
}

const hops: Hops = {
  published: ago(180),
  targeted: ago(180),
  released: ago(170),
  fetched: ago(160),
  verified: ago(160),
};

const failed: StackWhy = {
  project: 'default',
  stack_id: 'stack',
  stack_name: 'web',
  agent_id: 'agent',
  agent_name: 'store-0412',
  state: 'failed',
  wanted_sequence_id: 42,
  sequence_id: 42,
  hops,
  broken: {
    hop: 'applied',
    cause: 'failed',
    message: 'Immutable: 1 of 14 resources was refused by the API server',
    next: 'correct the manifest or its prerequisites, or roll back to the previous version',
    command: {
      line: 'brokkr rollback web',
      reach: { kind: 'stack', agents: 2 },
      check_first: 'what the newest version changed: brokkr diff web',
    },
  },
  evidence: ['Deployment shop/web: spec.selector: field is immutable', 'the agent is ACTIVE, last seen 4 s ago'],
};

test('the words are those of `brokkr why`', () => {
  const healthy: StackWhy = {
    ...failed,
    state: 'healthy',
    hops: { ...hops, applied: ago(60), healthy: ago(5), reported: ago(4) },
    broken: null,
    evidence: [],
  };
  const notTargeted: StackWhy = {
    ...failed,
    state: 'removed',
    wanted_sequence_id: null,
    sequence_id: null,
    hops: {},
    broken: {
      hop: 'targeted',
      cause: 'not_targeted',
      message: 'the stack web does not target the agent store-0412',
      next: "correct the agent's labels, or change the targets of the stack: brokkr stack retarget web",
      command: { line: 'brokkr agent label store-0412 env=prod', reach: { kind: 'agent' } },
    },
    evidence: ['selector env=prod does not match: it requires env=prod, but the agent has env=dev'],
  };
  const [first, second, third] = printed();
  expect(whyText(failed, now)).toBe(first);
  expect(whyText(healthy, now)).toBe(second);
  expect(whyText(notTargeted, now)).toBe(third);
});
