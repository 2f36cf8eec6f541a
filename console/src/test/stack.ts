// What tests of the acts on a stack share.

import axe from 'axe-core';
import { screen } from '@testing-library/react';
import { expect } from 'vitest';

import { serve } from './broker';

export interface Sent {
  method: string;
  path: string;
  search: string;
  match: string | null;
  body: unknown;
}

/** Answers as a broker, and records what changes something. */
export function record(answer: (request: Request) => Response | undefined = () => undefined) {
  const sent: Sent[] = [];
  serve(async (request) => {
    const { pathname: path, search } = new URL(request.url);
    const answered = answer(request);
    if (request.method === 'GET') return answered;
    const text = await request.clone().text();
    const body: unknown = text === '' ? undefined : JSON.parse(text);
    sent.push({ method: request.method, path, search, match: request.headers.get('if-match'), body });
    return answered;
  });
  return sent;
}

export async function accessible(dialog: HTMLElement) {
  const { violations } = await axe.run(dialog, { rules: { 'color-contrast': { enabled: false } } });
  expect(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
}

export const dialogOf = (name: string) => screen.findByRole('dialog', { name });
