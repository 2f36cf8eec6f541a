// The role that a control names is the one that the broker requires for what the control does.

import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import type { Rollout } from '../api/types';
import { roleFor, type RolloutCommand } from '../lib/rolloutCommands';
import { words } from '../words';
import { ADMIN_PAGES } from './adminPages';

type Operations = Record<string, { description?: string }>;

const { paths } = JSON.parse(readFileSync('../docs/openapi.json', 'utf8')) as { paths: Record<string, Operations> };

/** Returns the role that the broker requires. */
function required(method: string, path: string): string | undefined {
  const description = paths[path]?.[method.toLowerCase()]?.description ?? '';
  return /Permission: .*token with role (\w+)\.\s*$/.exec(description)?.[1];
}

const sources = import.meta.glob<string>('../**/*.tsx', { query: '?raw', import: 'default', eager: true });
const files = new Map(
  Object.entries(sources)
    .filter(([path]) => !path.includes('.test.'))
    .map(([path, text]) => [path.replace('../', ''), text]),
);

/** Returns the top-level functions and constants of a file by name. */
function parts(file: string): Map<string, string> {
  const all = (files.get(file) ?? '').split(/^(?=(?:export |async |function |const |interface |type )\S)/m);
  return new Map(all.map((text) => [/(?:function|const) (\w+)/.exec(text)?.[1] ?? '', text]));
}

/** Returns the writes of a piece of source, and of all functions and dialogs that it names: `POST /api/v1/...`. */
function writes(file: string, text: string, seen = new Set<string>()): string[] {
  const own = [...text.matchAll(/api\.(POST|PUT|PATCH|DELETE)\(\s*'([^']+)'/g)].map(([, method, path]) => `${method} ${path}`);
  const local = parts(file);
  const named = (text.match(/\w+/g) ?? []).filter((name) => local.has(name)).flatMap((name) => {
    const key = `${file} ${name}`;
    if (seen.has(key)) return [];
    seen.add(key);
    return writes(file, local.get(name) as string, seen);
  });
  const dialogs = [...text.matchAll(/import\('(\.[^']+)'\)/g)].flatMap(([, path]) => {
    const { pathname } = new URL(`${path}.tsx`, `file:///${file}`);
    const dialog = pathname.slice(1);
    return writes(dialog, [...parts(dialog).values()].find((one) => one.startsWith('export default')) ?? '', seen);
  });
  return [...new Set([...own, ...named, ...dialogs])];
}

/** Without a write: the command line does what the dialog shows. */
const BY_COMMAND_LINE: Record<string, string> = { 'pages/admin/acts/join.tsx say.start': 'POST /api/v1/join-tokens' };

interface Control {
  at: string;
  needs: string;
  does: string[];
}

/** Returns the role of all commands of a rollout without gates; several if they differ. */
function ofRollouts(): string {
  const commands = Object.keys(words.rolloutCommands.names) as RolloutCommand[];
  return [...new Set(commands.map((command) => roleFor(command, { state: 'running' } as Rollout)))].join(', ');
}

function controlsOf(file: string): Control[] {
  return [...parts(file).values()].flatMap((part) =>
    [...part.matchAll(/<ActButton\b([\s\S]*?)<\/ActButton>/g)].map(([, text = '']) => {
      const at = `${file} ${/name=\{([^}]+)\}/.exec(text)?.[1]}`;
      const [, literal] = /\bneeds="(\w+)"/.exec(text) ?? (text.includes('{...shared}') ? /\bneeds: '(\w+)'/.exec(part) : null) ?? [];
      const needs = literal ?? (text.includes('needs={roleFor(') ? ofRollouts() : '');
      const by = BY_COMMAND_LINE[at];
      return { at, needs, does: by === undefined ? writes(file, text) : [by] };
    }),
  );
}

const controls = [...files.keys()].flatMap(controlsOf);

test('every control is found, and does something', () => {
  const all = [...files.values()].reduce((sum, text) => sum + text.split('<ActButton').length - 1, 0);
  expect(controls).toHaveLength(all);
  expect(all).toBeGreaterThan(30);
});

test.each(controls)('$at needs the role of what it does', ({ needs, does }) => {
  const roles = does.map((write) => required(...(write.split(' ') as [string, string])));
  expect(does).not.toEqual([]);
  expect([...new Set(roles)], does.join(', ')).toEqual([needs]);
});

const READS: Record<string, string> = {
  tokens: '/api/v1/api-tokens',
  join: '/api/v1/join-tokens',
  projects: '/api/v1/projects',
  grants: '/api/v1/grants',
  webhooks: '/api/v1/webhooks',
  audit: '/api/v1/audit',
  system: '/api/v1/system',
};

test.each(ADMIN_PAGES)('$to needs the role of what it reads', ({ to, role }) => {
  expect(required('get', READS[to.replace('/admin/', '')] ?? '')).toBe(role);
});
