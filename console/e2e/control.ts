// The harness that starts and stops the broker of the tests. Its protocol is in README.md.

import { expect, request } from '@playwright/test';

import { environment } from './environment';

type Command = 'kill' | 'start' | 'cut' | 'revoke' | 'why' | 'back-up' | 'restore' | 'raise' | 'release' | 'arrived';

interface Options {
  body?: { token: string };
  /** The longest that the command may take, in milliseconds. */
  timeout?: number;
}

/** Carries out a command, and returns what it prints. */
export async function control(command: Command, { body, timeout = 600_000 }: Options = {}): Promise<string> {
  const context = await request.newContext();
  const url = `${environment.control?.replace(/\/$/, '')}/${command}`;
  const response = await context.post(url, { timeout, ...(body && { data: body }) });
  const text = await response.text();
  expect(response.status(), `${command}: ${text}`).toBe(200);
  await context.dispose();
  return text;
}
