// A rollout in words, as the command line describes it.

import type { Pending, Rollout, StopReason } from '../api/types';
import { words } from '../words';
import { number } from './format';

const say = words.rollout;

export function stopText(reason: StopReason): string {
  switch (reason.kind) {
    case 'too_many_bad':
      return say.stop.tooManyBad(reason.bad, reason.allowed);
    case 'too_many_excused':
      return say.stop.tooManyExcused(reason.excused);
    case 'person':
      return reason.reason;
    case 'denied':
      return say.stop.denied(reason.by, reason.reason);
    case 'gate_timed_out':
      return say.stop.gateTimedOut(reason.wave);
    case 'restored':
      return say.stop.restored;
    default:
      return '';
  }
}

/** `41 → 42` */
export function versionsText({ base_sequence_id: base, sequence_id: to, widens, is_deletion: isDeletion }: Rollout): string {
  if (widens != null) return say.widens(widens);
  if (base == null) return String(to);
  return isDeletion ? say.deletion(base, to) : say.versions(base, to);
}

export function hasEnded({ state }: Rollout): boolean {
  return state === 'completed' || state === 'superseded' || state === 'aborted';
}

const MOVING: ReadonlySet<Rollout['state']> = new Set(['running', 'soaking', 'gated']);

/** Returns what comes next, and when; nothing if the rollout does not move. */
export function nextText({ state, pending, policy, wave }: Rollout): string | undefined {
  if (!MOVING.has(state) || pending == null) return undefined;
  const waves = policy.waves ?? [];
  const sizeOf = (index: number) => waves[index] && say.next.ofTheAgents(waves[index].size);
  return waitText(pending, sizeOf(wave) ?? say.next.completion, sizeOf(wave - 1) ?? say.next.nextWave);
}

function waitText(pending: Pending, following: string, current: string): string | undefined {
  switch (pending.kind) {
    case 'in_flight':
      return say.next.inFlight(number(pending.limit));
    case 'healthy':
      return say.next.healthy(following, number(pending.needed));
    case 'late':
      return say.next.late(pending.agents);
    case 'soak':
      return say.next.soak(following, exactDuration(pending.left_seconds));
    case 'window':
      return say.next.window(pending.agents, pending.opens_at ? say.next.opensAt(pending.opens_at) : '');
    case 'gate':
      return say.next.gate(current, pending.given, pending.needed);
    default:
      return undefined;
  }
}

/** `7m 15s`, as the command line writes durations. */
export function exactDuration(seconds: number): string {
  const units = [
    ['day', 86_400],
    ['h', 3_600],
    ['m', 60],
    ['s', 1],
  ] as const;
  let left = seconds;
  const parts = units.flatMap(([unit, length]) => {
    const count = Math.trunc(left / length);
    left %= length;
    if (count === 0) return [];
    return [`${count}${unit === 'day' && count > 1 ? 'days' : unit}`];
  });
  return parts.length === 0 ? '0s' : parts.join(' ');
}

/** `11 healthy, 2 in flight` */
export function countsText({ figures }: Pick<Rollout, 'figures'>): string {
  const names = Object.keys(say.counts) as (keyof typeof say.counts)[];
  const shown = names.filter((name) => figures[name] > 0).map((name) => `${number(figures[name])} ${say.counts[name]}`);
  return shown.length === 0 ? say.none : shown.join(', ');
}

/** `2: 0 allowed, and 2 in flight` */
export function boundText({ allowed_bad: allowed, in_flight_limit: inFlight }: Rollout): string {
  return say.bound(number(allowed + inFlight), number(allowed), number(inFlight));
}

export interface WaveBar {
  wave: number;
  size: string;
  /** The part of its agents to which the version was released; nothing if that is not known. */
  filled: number | undefined;
  isCurrent: boolean;
}

/** Returns the waves with their progress. */
export function waveBars(rollout: Rollout): WaveBar[] {
  let before = 0;
  return (rollout.policy.waves ?? []).map(({ size, match, gate }, index) => {
    const wave = index + 1;
    const end = match == null ? Math.max(shareOf(size, rollout.figures.members), before) : before;
    const filled = filledPart(rollout, wave, before, end);
    before = end;
    const isCurrent = wave === rollout.wave && !hasEnded(rollout);
    return { wave, size: say.size(size, match ?? undefined, gate != null), filled, isCurrent };
  });
}

/** Returns the part of a wave that has the version; it has the agents from `before` to `end` in their order. */
function filledPart({ state, wave: current, figures }: Rollout, wave: number, before: number, end: number) {
  if (state === 'completed' || wave < current) return 1;
  if (wave > current) return 0;
  // How many agents have the labels of a wave is not known here.
  if (end === before) return undefined;
  return Math.min(Math.max(figures.released - before, 0), end - before) / (end - before);
}

/** Returns the number of agents of `10%` or `25`, at most all. */
function shareOf(size: string, members: number): number {
  const value = Number.parseInt(size, 10);
  const agents = size.endsWith('%') ? Math.ceil((members * value) / 100) : value;
  return Math.min(agents, members);
}
