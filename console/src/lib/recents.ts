// The stacks and agents that were opened last, in this browser. They are forgotten with the session.

import { project } from '../api/scope';

export interface Recent {
  kind: 'stack' | 'agent';
  name: string;
  project: string | undefined;
}

const SETTING = 'brokkr-recents';
const MOST = 8;

function read(): Recent[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(SETTING) ?? '[]');
    return Array.isArray(stored) ? (stored as Recent[]) : [];
  } catch {
    return [];
  }
}

/** Returns those of the current project, the last one first. */
export function recents(): Recent[] {
  return read().filter((one) => one.project === project());
}

export function remember(kind: Recent['kind'], name: string): void {
  const others = read().filter((one) => one.kind !== kind || one.name !== name || one.project !== project());
  const all = [{ kind, name, project: project() }, ...others];
  localStorage.setItem(SETTING, JSON.stringify(all.slice(0, MOST)));
}

export function forget(): void {
  localStorage.removeItem(SETTING);
}
