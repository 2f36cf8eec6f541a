// What tests of acts share.

import axe from 'axe-core';
import { screen, waitFor } from '@testing-library/react';
import { expect } from 'vitest';

import type { Role } from '../api/types';
import { serve, SESSION } from './broker';
import { json } from './json';

/** Answers as a broker to a token with a role, and records what changes something. */
export function record(role: Role, answer: (request: Request) => Response | undefined = () => undefined) {
  const sent: unknown[] = [];
  serve(async (request) => {
    const { pathname, search } = new URL(request.url);
    if (pathname.endsWith('/sessions/current')) return json(200, { ...SESSION, role });
    if (request.method === 'GET') return answer(request);
    const text = await request.clone().text();
    sent.push([`${request.method} ${pathname}${search}`, ...(text === '' ? [] : [JSON.parse(text)])]);
    return answer(request);
  });
  return sent;
}

export async function accessible() {
  const { violations } = await axe.run(document.body, {
    rules: { 'color-contrast': { enabled: false }, region: { enabled: false } },
  });
  expect(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
}

export const button = (name: string | RegExp) => screen.findByRole('button', { name });
export const dialog = (name: string) => screen.findByRole('dialog', { name });
export const closed = () => waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
