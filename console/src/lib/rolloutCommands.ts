// What a person can do with a rollout, in each of its states. The broker decides; this only leaves out what it would
// refuse.

import type { Role, Rollout, RolloutState } from '../api/types';
import type { words } from '../words';

export type RolloutCommand = keyof typeof words.rolloutCommands.names;

const BY_STATE: Record<RolloutState, readonly RolloutCommand[]> = {
  running: ['pause', 'promote', 'stop', 'abort'],
  soaking: ['pause', 'promote', 'skip', 'stop', 'abort'],
  gated: ['approve', 'deny', 'skip', 'pause', 'stop', 'abort'],
  paused: ['resume', 'stop', 'abort'],
  stopped: ['resume', 'abort'],
  completed: [],
  superseded: [],
  aborted: [],
};

const ABOUT_GATE: ReadonlySet<RolloutCommand> = new Set(['approve', 'deny', 'skip']);
const NEED_REASON: ReadonlySet<RolloutCommand> = new Set(['promote', 'skip', 'deny', 'stop', 'abort']);

/** Returns the commands that are possible now. */
export function commandsOf({ state, wave, waves }: Rollout): RolloutCommand[] {
  return BY_STATE[state].filter((command) => command !== 'promote' || wave < waves);
}

/** Returns the role that a command needs. Who opens a gate needs the role of the gate. */
export function roleFor(command: RolloutCommand, { state, wave, policy }: Rollout): Role {
  const gate = state === 'gated' && ABOUT_GATE.has(command) ? policy.waves?.[wave - 1]?.gate : undefined;
  return gate?.role ?? 'deployer';
}

export function needsReason(command: RolloutCommand): boolean {
  return NEED_REASON.has(command);
}
