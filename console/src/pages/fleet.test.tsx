import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import type { FleetSummary, Page, StackStatus } from '../api/types';
import { example, problem, serve } from '../test/broker';
import { cell, MATRIX } from '../test/fleet';
import { json } from '../test/json';
import { open } from '../test/open';

/** A stream to which the test adds messages. */
function streamed() {
  const encoder = new TextEncoder();
  let controller: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({ start: (made) => void (controller = made) });
  const send = (name: string, data: object) =>
    controller.enqueue(encoder.encode(`id: 1.1\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`));
  return { body, send };
}

test('the fleet in numbers and as a matrix', async () => {
  serve();
  open('/?by=region');
  await screen.findByText('1 of 2 agents on intent');
  const grid = await screen.findByRole('grid', { name: 'Stacks by agents' });
  const names = within(grid).getAllByRole('columnheader').map((header) => header.textContent);
  expect(names).toEqual(['Stack', 'eu', 'us']);
  const cells = within(grid).getAllByRole('gridcell').map((one) => one.getAttribute('aria-label'));
  expect(cells).toEqual([
    'till, eu: 1 agent, 1 on intent',
    'till, us: 1 agent, 1 on intent',
    'web, eu: 1 agent, 1 failing',
    'web, us: 1 agent, 1 on intent',
  ]);
});

test('the arrow keys walk the matrix, Enter lists the agents of a cell', async () => {
  serve();
  const { user, address } = open('/?by=region&selector=env%3Dprod');
  await screen.findByRole('gridcell', { name: /^till, eu/ });
  const focused = () => document.activeElement?.getAttribute('aria-label')?.split(':')[0];
  await user.keyboard('j');
  expect(focused()).toBe('till, eu');
  await user.keyboard('{ArrowRight}{ArrowDown}{ArrowDown}{ArrowLeft}');
  expect(focused()).toBe('web, eu');
  await user.keyboard('{Enter}');
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?selector=env%3Dprod%2Cregion%3Deu&state=failed'));
});

test('`y` explains the worst cell, or an agent of the cell that has the focus', async () => {
  const { requests } = serve();
  const { user, address } = open('/?by=region');
  await screen.findByRole('gridcell', { name: /^till, eu/ });
  await user.keyboard('y');
  await screen.findByRole('complementary', { name: 'Why' });
  expect(address()).toBe('/ui/?by=region&why=web%2Feu-1');
  const asked = requests.map(({ url }) => new URL(url).searchParams);
  expect(asked.some((search) => search.get('selector') === 'region=eu' && search.get('state') === 'failed')).toBe(true);
});

test('without a failure, `y` explains what is blocked', async () => {
  const [till, web] = MATRIX.rows;
  const blocked = { ...cell(1), on_intent: 0, blocked: 1 };
  const { requests } = serve(({ url }) => {
    if (!url.includes('/fleet/matrix')) return undefined;
    return json(200, { ...MATRIX, rows: [{ ...till, cells: [cell(1), cell(1)] }, { ...web, cells: [cell(1), blocked] }] });
  });
  const { user } = open('/?by=region');
  await screen.findByRole('gridcell', { name: /^till, eu/ });
  await user.keyboard('y');
  await screen.findByRole('complementary', { name: 'Why' });
  const asked = requests.map(({ url }) => new URL(url)).find(({ pathname }) => pathname.endsWith('/web/status'));
  expect(asked?.search).toContain('state=blocked&selector=region%3Dus');
});

test('of two lists on a page, the one with the focus gets the keys', async () => {
  serve();
  const { user } = open('/?by=region');
  await screen.findByRole('gridcell', { name: /^till, eu/ });
  const group = (await screen.findByText('ImagePullBackOff')).closest('li');
  group?.focus();
  await user.keyboard('j');
  expect(document.activeElement).toBe(group);
});

test('changed cells arrive live', async () => {
  const { body, send } = streamed();
  serve(({ url }) => (url.includes('/fleet/stream') ? new Response(body) : undefined));
  open('/?by=region');
  await screen.findByRole('gridcell', { name: 'web, eu: 1 agent, 1 failing' });
  const versions = () => screen.getAllByRole('rowheader').map((header) => header.textContent);
  const before = versions();
  expect(before).toEqual(['tillv8', 'webv2']);
  const unknown = [{ row: 1, sequence_id: 7 }];
  send('cells', { complete: true, position: '1.2', cells: [{ row: 1, column: 0, ...cell(7) }], versions: unknown });
  await screen.findByText('Live');
  expect(screen.queryByRole('gridcell', { name: /7 agents/ }), 'it is not known to what the cell refers').toBeNull();
  expect(versions(), 'nor to what the version refers').toEqual(before);
  send('matrix', MATRIX);
  send('cells', { complete: true, position: '1.3', cells: [{ row: 1, column: 0, ...cell(9) }], versions: [] });
  await screen.findByRole('gridcell', { name: 'web, eu: 9 agents, 9 on intent' });
  expect(versions()).toEqual(before);
  send('cells', { complete: true, position: '1.4', cells: [], versions: [{ row: 1, sequence_id: 9 }] });
  await waitFor(() => expect(versions()).toEqual(['tillv8', 'webv9']));
  screen.getByRole('gridcell', { name: 'web, eu: 9 agents, 9 on intent' });
});

test('while the broker loads what agents have reported, the page says so, until the stream says that it is complete', async () => {
  const { body, send } = streamed();
  let complete = false;
  serve(({ url }) => {
    if (url.includes('/fleet/stream')) return new Response(body);
    return url.endsWith('/fleet/summary') ? json(200, { ...example<FleetSummary>('GET /api/v1/fleet/summary'), complete }) : undefined;
  });
  open('/?by=region');
  const note = /still loads what agents have reported/;
  await screen.findByText(note);
  complete = true;
  send('matrix', MATRIX);
  await waitFor(() => expect(screen.queryByText(note)).toBeNull());
});

test('the numbers follow the stream: at once, then once in three seconds, and not while the page is hidden', async () => {
  const { body, send } = streamed();
  const { requests } = serve(({ url }) => (url.includes('/fleet/stream') ? new Response(body) : undefined));
  const read = () => requests.filter(({ url }) => url.endsWith('/fleet/summary')).length;
  const change = (agents: number) =>
    send('cells', { complete: true, position: '1.3', cells: [{ row: 1, column: 0, ...cell(agents) }], versions: [] });
  open('/?by=region');
  await screen.findByText('1 of 2 agents on intent');
  expect(read()).toBe(1);
  const begun = performance.now();
  send('matrix', MATRIX);
  await waitFor(() => expect(read()).toBe(2));
  for (const agents of [3, 4, 5]) change(agents);
  await screen.findByRole('gridcell', { name: /^web, eu: 5 agents/ });
  const most = 2 + Math.floor((performance.now() - begun) / 3_000);
  expect(read(), 'many messages, one request').toBeLessThanOrEqual(most);
  await waitFor(() => expect(read()).toBeGreaterThanOrEqual(3));
  vi.spyOn(document, 'visibilityState', 'get').mockReturnValue('hidden');
  const before = read();
  change(6);
  await screen.findByRole('gridcell', { name: /^web, eu: 6 agents/ });
  await new Promise((resolve) => setTimeout(resolve, 3_200));
  expect(read()).toBe(before);
});

test('the label of the columns is part of the address', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByRole('option', { name: 'region' });
  await user.selectOptions(screen.getByLabelText('Columns by label'), 'region');
  await waitFor(() => expect(address()).toBe('/ui/?by=region'));
  expect(document.activeElement, 'the choice keeps the focus').toBe(screen.getByLabelText('Columns by label'));
});

test('the chosen cell stays the same one when stacks are added before it', async () => {
  const { body, send } = streamed();
  serve(({ url }) => (url.includes('/fleet/stream') ? new Response(body) : undefined));
  const { user, address } = open('/?by=region');
  (await screen.findByRole('gridcell', { name: /^web, eu/ })).focus();
  const [first, ...rest] = MATRIX.rows;
  send('matrix', { ...MATRIX, rows: [{ ...first, stack_id: 'a', stack_name: 'auth' }, first, ...rest] });
  await screen.findByRole('gridcell', { name: /^auth, eu/ });
  expect(document.activeElement?.getAttribute('aria-label')).toContain('web, eu');
  await user.keyboard('y');
  await waitFor(() => expect(address()).toBe('/ui/?by=region&why=web%2Feu-1'));
});

test('to explain a cell, one row is read, and empty pages are passed', async () => {
  const [row] = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status').items;
  const asked: string[] = [];
  serve(({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (pathname !== '/api/v1/stacks/web/status') return undefined;
    asked.push(searchParams.toString());
    const isFirst = searchParams.get('after') === null;
    return json(200, isFirst ? { items: [], next: 'here' } : { items: [row], next: null });
  });
  const { user, address } = open('/?by=region');
  await screen.findByRole('gridcell', { name: /^till, eu/ });
  await user.keyboard('y');
  await waitFor(() => expect(address()).toBe('/ui/?by=region&why=web%2Feu-1'));
  const first = 'state=failed&selector=region%3Deu&limit=1&count=true';
  expect(asked).toEqual([first, first.replace('&limit', '&after=here&limit')]);
});

test('a cell that cannot be explained says why, and a late answer does not leave another page', async () => {
  const answer = Promise.withResolvers<Response>();
  let isFailing = true;
  serve(({ url }) => {
    if (!new URL(url).pathname.endsWith('/stacks/web/status')) return undefined;
    return isFailing ? problem(400, 'BRK2003', 'the selector is not valid') : answer.promise;
  });
  const { user, address } = open('/?by=region');
  const cellOfWeb = await screen.findByRole('gridcell', { name: /^web, eu/ });
  await user.click(cellOfWeb);
  expect((await screen.findByRole('alert')).textContent).toContain('the selector is not valid');
  isFailing = false;
  await user.click(cellOfWeb);
  await waitFor(() => expect(screen.queryByRole('alert')).toBeNull());
  await user.keyboard('gs');
  await screen.findByRole('grid', { name: 'Stacks' });
  answer.resolve(json(200, { items: [], next: null }));
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(address()).toBe('/ui/stacks');
});
