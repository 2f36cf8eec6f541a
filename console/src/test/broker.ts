// A broker that answers with the recorded examples of the documentation. They come from a real broker, so what the
// tests see cannot differ from what users get.

import { vi } from 'vitest';

import examples from '../../../docs/api-examples.json';
import type { Session } from '../api/types';
import { fleet } from './fleet';
import { json } from './json';

interface Example {
  status: number;
  answer?: unknown;
}

const recorded = Object.entries(examples as Record<string, Example>)
  .filter(([name]) => name.includes(' /'))
  .map(([name, example]) => {
    const [method, route] = name.split(' ') as [string, string];
    const pattern = new RegExp(`^${route.replaceAll(/\{\w+\}/g, '[^/]+')}$`);
    return { method, route, pattern, example };
  })
  // `/agents/preview` fits `/agents/{agent}`, too: the route with fewer parameters is meant.
  .toSorted((one, other) => one.route.split('{').length - other.route.split('{').length);

/** Returns the recorded response of a route. */
export function example<T>(name: keyof typeof examples): T {
  return structuredClone((examples as Record<string, Example>)[name]?.answer) as T;
}

export const SESSION: Session = {
  id: '019bc0e2-1280-7000-8000-0000000000aa',
  token_id: '019bc0e2-1280-7000-8000-000000000001',
  name: 'ana',
  role: 'owner',
  project: 'shop',
  projects: ['shop'],
  created_at: '2026-01-15T09:00:00Z',
  last_used_at: '2026-01-15T09:00:00Z',
  idle_at: '2026-01-15T10:00:00Z',
  expires_at: '2026-01-15T21:00:00Z',
  server_version: '0.1.0',
  hold: null,
};

type Handler = (request: Request) => Response | undefined | Promise<Response | undefined>;

export function problem(status: number, code: string, detail: string, next = 'try again'): Response {
  return json(status, { type: '', title: '', status, code, detail, next, request_id: 'request-1' });
}

/** Answers requests: with the handler, else with the session and the fleet, else with the recorded example. */
export function serve(handler: Handler = () => undefined): { requests: Request[] } {
  const requests: Request[] = [];
  vi.spyOn(globalThis, 'fetch').mockImplementation(async (input, init) => {
    const request = new Request(input as Request, init);
    requests.push(request);
    const handled = await handler(request);
    if (handled !== undefined) return handled;
    const { pathname } = new URL(request.url);
    const view = fleet(request);
    if (view !== undefined) return view;
    // Nothing happens, unless the test says otherwise.
    if (pathname.endsWith('/stream')) return new Response(new ReadableStream());
    if (pathname.startsWith('/api/v1/sessions')) {
      return request.method === 'DELETE' ? new Response(null, { status: 204 }) : json(200, SESSION);
    }
    const found = recorded.find(({ method, pattern }) => method === request.method && pattern.test(pathname));
    if (found === undefined) return problem(404, 'BRK1003', `no example of ${request.method} ${pathname}`);
    const { status, answer } = found.example;
    const response = typeof answer === 'string' ? new Response(answer, { status }) : json(status, answer);
    if (found.route === '/api/v1/stacks/{stack}') response.headers.set('etag', '"tag-of-web"');
    return response;
  });
  return { requests };
}
