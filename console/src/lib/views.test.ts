import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';

import { joinCommand } from '../pages/admin/acts/join';
import { chooseProject } from '../api/scope';
import { words } from '../words';
import { curl, quoted, views, type View } from './views';

afterEach(() => chooseProject(undefined));

const all = (): Record<keyof typeof views, View> => ({
  fleet: views.fleet({ by: 'region', selector: 'env=prod' }),
  stacks: views.stacks({ name: 'we', selector: 'team=shop' }),
  stack: views.stack('web'),
  status: views.status('web', { state: 'failed', selector: 'env in (prod,dev)' }),
  versions: views.versions('web'),
  stackErrors: views.stackErrors('web'),
  diff: views.diff('web', 41, 42),
  why: views.why('web', 'eu-1'),
  agents: views.agents({ name: 'store', selector: 'env=prod', presence: 'silent' }),
  agent: views.agent('eu-1'),
  events: views.events({ stack: 'web', agent: 'eu-1', version: 2, transition: 'failed', since: '2026-01-15T09:00:00Z' }),
  rollouts: views.rollouts(),
  rollout: views.rollout('web', 42),
  tokens: views.tokens(),
  joinTokens: views.joinTokens(),
  projects: views.projects(),
  grants: views.grants(),
  webhooks: views.webhooks(),
  deliveries: views.deliveries('chat'),
  audit: views.audit(),
  system: views.system(),
});

test('each view has a command and a request', () => {
  expect(all()).toMatchInlineSnapshot(`
    {
      "agent": {
        "api": "/api/v1/agents/eu-1/why",
        "cli": "brokkr why agent/eu-1",
      },
      "agents": {
        "api": "/api/v1/agents?name=store&selector=env%3Dprod&presence=silent",
        "cli": "brokkr agent list --name store -l env=prod --presence silent",
      },
      "audit": {
        "api": "/api/v1/audit",
        "cli": "brokkr audit list",
      },
      "deliveries": {
        "api": "/api/v1/webhooks/chat/deliveries",
        "cli": "brokkr webhook deliveries chat",
      },
      "diff": {
        "api": "/api/v1/stacks/web/diff?from=41&to=42",
        "cli": "brokkr diff web 41 42",
      },
      "events": {
        "api": "/api/v1/events?stack=web&agent=eu-1&transition=failed&sequence_id=2&since=2026-01-15T09%3A00%3A00.000Z",
        "cli": "brokkr events web --agent eu-1 --sequence 2 --event failed --since 2026-01-15T09:00:00Z",
      },
      "fleet": {
        "api": "/api/v1/fleet/matrix?by=region&selector=env%3Dprod",
        "cli": "brokkr status",
      },
      "grants": {
        "api": "/api/v1/grants",
        "cli": "brokkr grant list",
      },
      "joinTokens": {
        "api": "/api/v1/join-tokens",
        "cli": "brokkr agent join-tokens",
      },
      "projects": {
        "api": "/api/v1/projects",
        "cli": "brokkr project list",
      },
      "rollout": {
        "api": "/api/v1/rollouts/42",
        "cli": "brokkr rollout show web",
      },
      "rollouts": {
        "api": "/api/v1/rollouts",
        "cli": "brokkr rollout list --all",
      },
      "stack": {
        "api": "/api/v1/stacks/web",
        "cli": "brokkr stack show web",
      },
      "stackErrors": {
        "api": "/api/v1/stacks/web/errors",
        "cli": "brokkr errors web",
      },
      "stacks": {
        "api": "/api/v1/stacks?name=we&selector=team%3Dshop",
        "cli": "brokkr stack list",
      },
      "status": {
        "api": "/api/v1/stacks/web/status?state=failed&selector=env+in+%28prod%2Cdev%29",
        "cli": "brokkr status web --state failed -l 'env in (prod,dev)'",
      },
      "system": {
        "api": "/api/v1/system",
        "cli": "brokkr admin status",
      },
      "tokens": {
        "api": "/api/v1/api-tokens",
        "cli": "brokkr token list",
      },
      "versions": {
        "api": "/api/v1/stacks/web/deployment-objects",
        "cli": "brokkr stack history web",
      },
      "webhooks": {
        "api": "/api/v1/webhooks",
        "cli": "brokkr webhook list",
      },
      "why": {
        "api": "/api/v1/stacks/web/agents/eu-1/why",
        "cli": "brokkr why web --agent eu-1",
      },
    }
  `);
});

test('a chosen project is part of the command and of the request', () => {
  chooseProject('shop');
  expect(views.stack('web').cli).toBe('brokkr stack show web --project shop');
  expect(curl(views.stack('web'), 'https://brokkr.example')).toBe(
    'curl --fail-with-body -H "authorization: Bearer $BROKKR_TOKEN" -H \'brokkr-project: shop\'' +
      ' https://brokkr.example/api/v1/stacks/web',
  );
});

test('a name cannot end a quoted word', () => {
  expect(quoted("a'; rm -rf /")).toBe(String.raw`'a'\''; rm -rf /'`);
});

/** The commands of the command line, each with its help; without groups such as `brokkr stack`. */
function commands(): Map<string, string> {
  const help = readFileSync('../crates/cli/src/snapshots/brokkr__args__tests__help.snap', 'utf8');
  const blocks = help.split('\n### ').slice(1).filter((block) => !block.includes('<COMMAND>\n'));
  return new Map(blocks.map((block) => [block.slice(0, block.indexOf('\n')).trim(), block]));
}

/** Returns what the command line does not know of a command: its name, or a flag. */
function unknownParts(line: string, known: Map<string, string>): string[] {
  const parts = line.split(' ');
  const name = [3, 2].map((count) => parts.slice(0, count).join(' ')).find((start) => known.has(start));
  if (name === undefined) return [line];
  const help = known.get(name) as string;
  const flags = parts.filter((part) => part.startsWith('-')).map((part) => part.split('=')[0] as string);
  return flags.filter((flag) => !new RegExp(`(^|\\s|, )${flag}\\b`, 'm').test(help) && flag !== '--project');
}

test('the command line knows every command that the console shows', () => {
  const known = commands();
  const shown = [
    ...Object.values(all()).map((view) => view.cli),
    ...Object.values(words.admin.empty).map(([, command]) => command),
    words.login.command,
    words.stacks.emptyCommand,
    words.agents.emptyCommand,
    words.rollouts.emptyCommand,
    words.stack.emptyStatusCommand('web'),
    words.stack.emptyVersionsCommand('web'),
    words.agent.noStacksCommand('eu-1'),
    joinCommand({ agent: 'shop-1', labels: { env: 'prod' }, exists: false }),
    joinCommand({ agent: 'shop-1', labels: {}, exists: true }),
  ];
  expect(shown.flatMap((line) => unknownParts(line, known))).toEqual([]);
  expect(unknownParts('brokkr stack dance web', known)).not.toEqual([]);
  expect(unknownParts('brokkr status web --colour red', known)).toEqual(['--colour']);
});
