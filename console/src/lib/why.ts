// The words of `brokkr why`. Message, evidence and next step come from the broker; the frame around them is the same
// as that of the command line, and a test compares both.

import type { Broken, Hop, Hops, NextCommand, StackWhy } from '../api/types';
import { words } from '../words';
import { age, orDash } from './format';

export const HOPS: readonly Hop[] = [
  'published',
  'targeted',
  'released',
  'fetched',
  'verified',
  'applied',
  'pruned',
  'healthy',
  'reported',
];

export interface HopLine {
  hop: Hop;
  mark: 'passed' | 'broken' | 'open';
  at: string | undefined;
  text: string;
}

/** Returns `failed at version 42`. */
export function verdict(why: StackWhy): string {
  const { state, wanted_sequence_id: wanted, sequence_id: has } = why;
  const say = words.why.verdict;
  if (state === 'removed') return say.removed(state);
  if (state === 'removing') return say.atVersion(state, orDash(wanted));
  if (wanted == null) return say.notTargeted(state);
  if (has == null) return say.nothingReported(state, wanted);
  return has === wanted ? say.atVersion(state, String(wanted)) : say.other(state, wanted, has);
}

export function chain(hops: Hops, broken: Broken | null | undefined, now: number): HopLine[] {
  return HOPS.map((hop) => {
    const at = hops[hop] ?? undefined;
    if (broken?.hop === hop) return { hop, mark: 'broken', at, text: broken.message };
    if (at !== undefined) return { hop, mark: 'passed', at, text: words.ago(age(at, now)) };
    return { hop, mark: 'open', at, text: '' };
  });
}

/** Returns what a command changes; nothing if this console does not know. */
export function reach({ reach: changed }: NextCommand): string | undefined {
  const say = words.why.reach;
  switch (changed.kind) {
    case 'object':
    case 'cluster':
    case 'agent':
    case 'installation':
      return say[changed.kind];
    case 'stack':
      return say.stack(changed.agents);
    case 'grant':
      return say.grant(changed.agents);
    default:
      return undefined;
  }
}

const MARKS = { passed: '✔', broken: '✖', open: '–' } as const;

/** Returns the explanation as text, as `brokkr why STACK --agent AGENT` prints it. */
export function whyText(why: StackWhy, now: number): string {
  const { broken } = why;
  const lines = [words.why.title(why.stack_name, why.agent_name, verdict(why))];
  for (const { mark, hop, text } of chain(why.hops, broken, now)) {
    lines.push(`  ${MARKS[mark]} ${hop.padEnd(9)}  ${text}`.trimEnd());
  }
  lines.push(...why.evidence.map((line) => `  ${line}`));
  if (broken?.next) {
    lines.push(words.why.next(broken.next));
    const { command } = broken;
    const changes = command && reach(command);
    if (changes) lines.push(`  ${words.why.changes(changes)}`);
    if (command?.check_first) lines.push(`  ${words.why.checkFirst(command.check_first)}`);
    if (command) lines.push(`  ${command.line}`);
  }
  return lines.join('\n');
}
