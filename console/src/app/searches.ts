// The search parameters of the pages: their types, and how they are read from an address.

import type { Presence, State, StatusSort } from '../api/types';
import { oneOf, text, whole } from '../lib/search';
import { words } from '../words';

type Raw = Record<string, unknown>;

type StackTab = keyof typeof words.stack.tabs;
type AgentTab = keyof typeof words.agent.tabs;

type Transition = keyof typeof words.events.transitions;

const STATES = Object.keys(words.states) as State[];
const PRESENCES = Object.keys(words.presences) as Presence[];
const SORTS = Object.keys(words.filters.sorts) as StatusSort[];
const TRANSITIONS = Object.keys(words.events.transitions) as Transition[];
const STACK_TABS = Object.keys(words.stack.tabs) as StackTab[];
const AGENT_TABS = Object.keys(words.agent.tabs) as AgentTab[];

export interface FleetSearch {
  by?: string | undefined;
  selector?: string | undefined;
}

export interface StacksSearch {
  name?: string | undefined;
  selector?: string | undefined;
}

export interface StackSearch {
  tab?: StackTab | undefined;
  state?: State | undefined;
  selector?: string | undefined;
  error?: string | undefined;
  presence?: Presence | undefined;
  behind?: true | undefined;
  sort?: StatusSort | undefined;
  from?: number | undefined;
  to?: number | undefined;
}

export interface AgentsSearch {
  name?: string | undefined;
  selector?: string | undefined;
  presence?: Presence | undefined;
}

export interface AgentSearch {
  tab?: AgentTab | undefined;
}

export interface EventsSearch {
  stack?: string | undefined;
  agent?: string | undefined;
  version?: number | undefined;
  transition?: Transition | undefined;
  since?: string | undefined;
  until?: string | undefined;
}

export const fleetSearch = (raw: Raw): FleetSearch => ({ by: text(raw['by']), selector: text(raw['selector']) });

export const stacksSearch = (raw: Raw): StacksSearch => ({ name: text(raw['name']), selector: text(raw['selector']) });

export const stackSearch = (raw: Raw): StackSearch => ({
  tab: oneOf(raw['tab'], STACK_TABS),
  state: oneOf(raw['state'], STATES),
  selector: text(raw['selector']),
  error: text(raw['error']),
  presence: oneOf(raw['presence'], PRESENCES),
  behind: raw['behind'] === true || raw['behind'] === 'true' ? true : undefined,
  sort: oneOf(raw['sort'], SORTS),
  from: whole(raw['from']),
  to: whole(raw['to']),
});

export const agentsSearch = (raw: Raw): AgentsSearch => ({
  name: text(raw['name']),
  selector: text(raw['selector']),
  presence: oneOf(raw['presence'], PRESENCES),
});

export const agentSearch = (raw: Raw): AgentSearch => ({ tab: oneOf(raw['tab'], AGENT_TABS) });

export const eventsSearch = (raw: Raw): EventsSearch => ({
  stack: text(raw['stack']),
  agent: text(raw['agent']),
  version: whole(raw['version']),
  transition: oneOf(raw['transition'], TRANSITIONS),
  since: text(raw['since']),
  until: text(raw['until']),
});

/** Splits `STACK/AGENT`. Neither name contains a slash. */
export function pairOf(why: string | undefined): { stack: string; agent: string } | undefined {
  const [stack, agent] = why?.split('/') ?? [];
  return stack && agent ? { stack, agent } : undefined;
}
