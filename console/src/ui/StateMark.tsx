// A state as a glyph and a word. The colour only repeats what the glyph says.

import type { Presence, RolloutState, State } from '../api/types';
import { words } from '../words';
import styles from './StateMark.module.css';

type Tone = 'good' | 'bad' | 'warn' | 'busy' | 'quiet';

const STATES: Record<State, [Tone, string]> = {
  healthy: ['good', '✔'],
  failed: ['bad', '✖'],
  degraded: ['warn', '▼'],
  blocked: ['warn', '■'],
  pending: ['busy', '…'],
  applied: ['busy', '◐'],
  removing: ['busy', '◌'],
  removed: ['quiet', '–'],
  unknown: ['quiet', '?'],
};

const PRESENCES: Record<Presence, [Tone, string]> = {
  fresh: ['good', '●'],
  late: ['warn', '◐'],
  silent: ['bad', '○'],
  never: ['quiet', '–'],
};

const ROLLOUTS: Record<RolloutState, [Tone, string]> = {
  running: ['busy', '▶'],
  soaking: ['busy', '◷'],
  gated: ['warn', '■'],
  paused: ['warn', '‖'],
  stopped: ['bad', '✖'],
  completed: ['good', '✔'],
  superseded: ['quiet', '–'],
  aborted: ['bad', '✖'],
};

export function Mark({ tone, glyph, children }: { tone: Tone; glyph: string; children: string }) {
  return (
    <span className={`${styles.mark} ${styles[tone]}`}>
      <span aria-hidden="true" className={styles.glyph}>
        {glyph}
      </span>
      {children}
    </span>
  );
}

export function StateMark({ state }: { state: State }) {
  const [tone, glyph] = STATES[state] ?? STATES.unknown;
  return (
    <Mark tone={tone} glyph={glyph}>
      {words.states[state] ?? state}
    </Mark>
  );
}

export function PresenceMark({ presence }: { presence: Presence }) {
  const [tone, glyph] = PRESENCES[presence];
  return (
    <Mark tone={tone} glyph={glyph}>
      {words.presences[presence]}
    </Mark>
  );
}

export function RolloutMark({ state }: { state: RolloutState }) {
  const [tone, glyph] = ROLLOUTS[state];
  return (
    <Mark tone={tone} glyph={glyph}>
      {state}
    </Mark>
  );
}
