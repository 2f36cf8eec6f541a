// The same view elsewhere: as a command of the command line, and as a request for curl.

import type { paths } from '../api/openapi.gen';
import { project } from '../api/scope';
import { eventParameters, type AgentFilter, type EventFilter, type StackFilter, type StatusFilter } from '../api/queries';
import type { MatrixFilter } from '../api/types';

export interface View {
  cli: string;
  api: string;
}

type Values = Record<string, string | number | boolean | undefined>;

/** Returns the path of a route, with its parameters. */
export function apiPath(route: keyof paths, params: Values = {}, query: Values = {}): string {
  const path = route.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(params[name])));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? path : `${path}?${search}`;
}

/** Quotes a word for a shell, if that is necessary. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

function command(...wordsAndFlags: (string | undefined)[]): string {
  const list = wordsAndFlags.filter((word) => word !== undefined);
  const scope = project();
  return ['brokkr', ...list.map(quoted), ...(scope === undefined ? [] : ['--project', quoted(scope)])].join(' ');
}

function flag(name: string, value: string | undefined): [string, string] | [] {
  return value === undefined ? [] : [name, value];
}

export function curl(view: View, origin: string): string {
  const scope = project();
  const header = scope === undefined ? '' : ` -H ${quoted(`brokkr-project: ${scope}`)}`;
  return `curl --fail-with-body -H "authorization: Bearer $BROKKR_TOKEN"${header} ${quoted(origin + view.api)}`;
}

/** Returns the parameters of the API; what is no time yet is left out while it is typed. */
function written(filter: EventFilter): Values {
  try {
    return eventParameters(filter);
  } catch {
    return eventParameters({ ...filter, since: undefined, until: undefined });
  }
}

export const views = {
  fleet: (filter: MatrixFilter): View => ({
    cli: command('status'),
    api: apiPath('/api/v1/fleet/matrix', {}, { ...filter }),
  }),
  stacks: (filter: StackFilter): View => ({
    cli: command('stack', 'list'),
    api: apiPath('/api/v1/stacks', {}, { ...filter }),
  }),
  stack: (stack: string): View => ({
    cli: command('stack', 'show', stack),
    api: apiPath('/api/v1/stacks/{stack}', { stack }),
  }),
  status: (stack: string, filter: StatusFilter): View => ({
    cli: command('status', stack, ...flag('--state', filter.state), ...flag('-l', filter.selector)),
    api: apiPath('/api/v1/stacks/{stack}/status', { stack }, { ...filter }),
  }),
  versions: (stack: string): View => ({
    cli: command('stack', 'history', stack),
    api: apiPath('/api/v1/stacks/{stack}/deployment-objects', { stack }),
  }),
  stackErrors: (stack: string): View => ({
    cli: command('errors', stack),
    api: apiPath('/api/v1/stacks/{stack}/errors', { stack }),
  }),
  diff: (stack: string, from: number, to: number): View => ({
    cli: command('diff', stack, String(from), String(to)),
    api: apiPath('/api/v1/stacks/{stack}/diff', { stack }, { from, to }),
  }),
  why: (stack: string, agent: string): View => ({
    cli: command('why', stack, '--agent', agent),
    api: apiPath('/api/v1/stacks/{stack}/agents/{agent}/why', { stack, agent }),
  }),
  agents: (filter: AgentFilter): View => ({
    cli: command(
      'agent',
      'list',
      ...flag('--name', filter.name),
      ...flag('-l', filter.selector),
      ...flag('--presence', filter.presence),
    ),
    api: apiPath('/api/v1/agents', {}, { ...filter }),
  }),
  agent: (agent: string): View => ({
    cli: command('why', `agent/${agent}`),
    api: apiPath('/api/v1/agents/{agent}/why', { agent }),
  }),
  events: (filter: EventFilter): View => ({
    cli: command(
      'events',
      filter.stack,
      ...flag('--agent', filter.agent),
      ...flag('--sequence', filter.version?.toString()),
      ...flag('--event', filter.transition),
      ...flag('--since', filter.since),
      ...flag('--until', filter.until),
    ),
    api: apiPath('/api/v1/events', {}, written(filter)),
  }),
  rollouts: (stack?: string): View =>
    stack === undefined
      ? { cli: command('rollout', 'list', '--all'), api: apiPath('/api/v1/rollouts') }
      : { cli: command('rollout', 'show', stack), api: apiPath('/api/v1/rollouts', {}, { stack }) },
  rollout: (stack: string | undefined, sequence: number): View => ({
    cli: stack === undefined ? command('rollout', 'list', '--all') : command('rollout', 'show', stack),
    api: apiPath('/api/v1/rollouts/{sequence_id}', { sequence_id: sequence }),
  }),
  tokens: (): View => ({ cli: command('token', 'list'), api: apiPath('/api/v1/api-tokens') }),
  joinTokens: (): View => ({ cli: command('agent', 'join-tokens'), api: apiPath('/api/v1/join-tokens') }),
  projects: (): View => ({ cli: command('project', 'list'), api: apiPath('/api/v1/projects') }),
  grants: (): View => ({ cli: command('grant', 'list'), api: apiPath('/api/v1/grants') }),
  webhooks: (): View => ({ cli: command('webhook', 'list'), api: apiPath('/api/v1/webhooks') }),
  deliveries: (webhook: string): View => ({
    cli: command('webhook', 'deliveries', webhook),
    api: apiPath('/api/v1/webhooks/{webhook}/deliveries', { webhook }),
  }),
  audit: (): View => ({ cli: command('audit', 'list'), api: apiPath('/api/v1/audit') }),
  system: (): View => ({ cli: command('admin', 'status'), api: apiPath('/api/v1/system') }),
};
