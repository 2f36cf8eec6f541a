import axe from 'axe-core';
import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import type { ErrorGroup, Hop, Page, StackWhy } from '../api/types';
import { example, serve, SESSION } from '../test/broker';
import { json } from '../test/json';
import { open } from '../test/open';

/** Each page, and something that it shows once it has loaded. */
const PAGES = [
  ['/', 'ImagePullBackOff'],
  ['/login', 'API token'],
  ['/stacks', 'team=shop'],
  ['/stacks/web', 'ImagePullBackOff: Deployment shop/web: 0/3 replicas ready'],
  ['/stacks/web?tab=versions', 'the image of 1.5.0 was not pushed'],
  ['/stacks/web?tab=errors', 'Deployment shop/web: ImagePullBackOff: cannot pull shop/web:1.5.0: not found'],
  ['/stacks/web?tab=diff&from=1&to=2', 'shop/web:1.5.0'],
  ['/stacks/web?tab=targets', 'matches 1 agent'],
  ['/stacks/web?tab=rollouts', '7 → 8'],
  ['/stacks/web?why=web%2Feu-1', 'web on eu-1: failed at version 2'],
  ['/stacks/web/agents/eu-1', 'web on eu-1: failed at version 2'],
  ['/agents', 'env=prod,region=us'],
  ['/agents/eu-1', 'selector env=prod'],
  ['/agents/eu-1?tab=events', 'applied'],
  ['/agents/eu-1?tab=details', 'contact=shop-team'],
  ['/rollouts', '7 → 8'],
  ['/rollouts/8', '100% of the agents, when 1 agent is healthy'],
  ['/approvals', 'Nothing waits for a person.'],
  ['/activity?stack=web', 'by pipeline: the image of 1.5.0 was not pushed'],
  ['/events', 'ImagePullBackOff: Deployment shop/web: 0/3 replicas ready'],
  ['/admin/tokens', 'dashboard'],
  ['/admin/join', 'waiting for the agent'],
  ['/admin/projects', '0 of 10,000'],
  ['/admin/grants', 'shop/brokkr-shop'],
  ['/admin/webhooks', 'https://hooks.example.com/brokkr'],
  ['/admin/webhooks/chat', '204'],
  ['/admin/audit', 'POST /api/v1/stacks/banner/deployment-objects'],
  ['/admin/system', 'brokkr_serving'],
] as const;

test.each(PAGES)('%s shows the recorded example, and has no accessibility finding', async (path, text) => {
  const admin = { ...SESSION, role: 'admin' };
  serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, admin) : undefined));
  const { container } = open(path);
  await waitFor(() => expect(screen.getAllByText(text, { exact: true }).length).toBeGreaterThan(0));
  expect(screen.queryByRole('alert'), 'no request failed').toBeNull();
  // The document has no colours; the contrast is checked in a browser.
  const { violations } = await axe.run(container, { rules: { 'color-contrast': { enabled: false } } });
  expect(violations.map(({ id, nodes }) => [id, nodes[0]?.html])).toEqual([]);
});

test('the only inline style is the one that the content security policy allows', async () => {
  // React Aria leaves it out in tests.
  vi.stubEnv('NODE_ENV', 'development');
  serve();
  open('/stacks');
  await screen.findByRole('button', { name: 'Copy this view' });
  const styles = [...document.querySelectorAll('style')].map((style) => style.textContent);
  const hashes = await Promise.all(
    styles.map(async (style) => Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(style)))),
  );
  expect(hashes.map((hash) => hash.toString('base64'))).toEqual(['38RhXrc7EdReTKsOm23ZPOCUgniTUUcjky8QOOrQx6o=']);
});

test('from a red fleet to the cause in one key', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByText('ImagePullBackOff');
  await user.keyboard('y');
  const panel = await screen.findByRole('complementary', { name: 'Why' });
  await within(panel).findByText('Deployment shop/web: 0/3 replicas ready');
  expect(address()).toBe('/ui/?why=web%2Feu-1');
  expect(panel.contains(document.activeElement) || document.activeElement === panel).toBe(true);
  await user.keyboard('{Escape}');
  await waitFor(() => expect(screen.queryByRole('complementary')).toBeNull());
});

test('failures come before what waits for an approval, and `y` explains the first failure', async () => {
  const [failure] = example<Page<ErrorGroup>>('GET /api/v1/errors').items;
  const waiting = (stack: string): unknown => ({
    ...failure,
    count: 2,
    reason: 'PruneNeedsApproval',
    examples: failure?.examples.map((one) => ({ ...one, agent_name: 'us-1', stack_name: stack })),
  });
  serve(({ url }) => {
    const items = [waiting('settings'), failure, waiting('till')];
    return url.includes('/errors') ? json(200, { items, next: null }) : undefined;
  });
  const { user, address } = open('/stacks/web?tab=errors');
  await screen.findByText(/settings on us-1/);
  const names = screen.getAllByRole('link', { name: / on / }).map((link) => link.textContent);
  expect(names).toEqual(['web on eu-1', 'settings on us-1', 'till on us-1']);
  await user.keyboard('y');
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?tab=errors&why=web%2Feu-1'));
});

test('from a failing row of a stack to the cause in two keys, and back to the row', async () => {
  serve();
  const { user } = open('/stacks/web');
  await screen.findByText('eu-1');
  await user.keyboard('j');
  const row = await waitFor(() => {
    expect(document.activeElement?.role ?? document.activeElement?.getAttribute('role')).toBe('row');
    return document.activeElement;
  });
  await user.keyboard('y');
  await screen.findByRole('complementary', { name: 'Why' });
  await user.keyboard('{Escape}');
  await waitFor(() => expect(document.activeElement).toBe(row));
});

test('the explanation has hops, evidence, next step and times of the last versions', async () => {
  serve();
  const { hops: times } = example<StackWhy>('GET /api/v1/stacks/{stack}/agents/{agent}/why');
  const ago = (hop: Hop) => `${(Date.now() - Date.parse(times[hop] ?? '')) / 1000}s ago`;
  open('/stacks/web/agents/eu-1');
  const hops = await screen.findByRole('list', { name: 'Steps of the delivery' });
  const lines = within(hops)
    .getAllByRole('listitem')
    .map((line) => line.textContent);
  expect(lines).toEqual([
    `✔passed: published${ago('published')}`,
    `✔passed: targeted${ago('targeted')}`,
    `✔passed: released${ago('released')}`,
    `✔passed: fetched${ago('fetched')}`,
    `✔passed: verified${ago('verified')}`,
    '–not reached: applied',
    '–not reached: pruned',
    '✖not passed: healthyDeployment shop/web: 0/3 replicas ready',
    `✔passed: reported${ago('reported')}`,
  ]);
  expect(screen.getByText('the agent is ACTIVE, last seen 3 s ago')).toBeTruthy();
  expect(screen.getByText(/^next: correct the image/)).toBeTruthy();
  expect(await screen.findByText('Version 1 · healthy · 5.0 s in all')).toBeTruthy();
});

test('what the stream reports changes the row in place, and the page is live', async () => {
  const recorded = example<string>('GET /api/v1/stacks/{stack}/status/stream');
  const gate = Promise.withResolvers<void>();
  serve(({ url }) => {
    if (!url.endsWith('/status/stream')) return undefined;
    const body = new ReadableStream({
      async start(controller) {
        await gate.promise;
        controller.enqueue(new TextEncoder().encode(recorded));
      },
    });
    return new Response(body);
  });
  open('/stacks/web');
  const row = await screen.findByRole('row', { name: /eu-1/ });
  expect(row.textContent).toContain('failed');
  await screen.findByText('Live');
  gate.resolve();
  await waitFor(() => expect(row.textContent).toContain('healthy'));
  expect(row.textContent).toContain('3 / 3');
});

test('a count is a filter of the list', async () => {
  const { requests } = serve();
  const { user, address } = open('/stacks/web');
  const counts = await screen.findByRole('list', { name: 'Agents by state' });
  await user.click(within(counts).getByRole('link', { name: /failed/ }));
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?state=failed'));
  await waitFor(() => expect(requests.some(({ url }) => url.includes('/status?state=failed'))).toBe(true));
});

test('filters follow the address, and clearing them keeps the focus in the form', async () => {
  serve();
  const { user, address, router } = open('/stacks/web?state=failed');
  const state = await screen.findByLabelText<HTMLSelectElement>('State');
  expect(state.value).toBe('failed');
  await router.navigate({ to: '/stacks/$stack', params: { stack: 'web' }, search: { state: 'healthy' } });
  await waitFor(() => expect(state.value).toBe('healthy'));
  await user.click(screen.getByRole('button', { name: 'Clear filters' }));
  await waitFor(() => expect(address()).toBe('/ui/stacks/web'));
  expect(state.value).toBe('');
  expect(document.activeElement).toBe(state);
});

test('`]` and `d` change the view of a stack', async () => {
  serve();
  const { user, address } = open('/stacks/web');
  await screen.findByRole('grid');
  await user.keyboard(']');
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?tab=versions'));
  await user.keyboard('d');
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?tab=diff'));
  await screen.findByText('spec.template.spec.containers[web].image');
});

test('an empty list shows the command that fills it', async () => {
  serve(({ url }) => (new URL(url).pathname === '/api/v1/agents' ? json(200, { items: [], next: null }) : undefined));
  open('/agents');
  await screen.findByText('brokkr agent join shop-1 --label env=dev');
});

test('a list loads 500 rows at a time, and shows how many there are', async () => {
  const [agent] = example<{ items: { id: string; name: string }[] }>('GET /api/v1/agents').items;
  const { requests } = serve(({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (pathname !== '/api/v1/agents') return undefined;
    const from = Number(searchParams.get('after') ?? 0);
    const items = Array.from({ length: 500 }, (_, index) => ({ ...agent, id: `${from + index}`, name: `store-${from + index}` }));
    return json(200, { items, next: String(from + 500), total: from === 0 ? 100_000 : null });
  });
  const { user } = open('/agents');
  await screen.findByText('500 of 100,000');
  expect(screen.getByRole('grid').getAttribute('aria-rowcount')).toBe('100001');
  expect(screen.getAllByRole('row').length, 'only visible rows are in the document').toBeLessThan(60);
  await user.click(screen.getByRole('button', { name: 'Load more' }));
  await screen.findByText('1,000 of 100,000');
  expect(requests.filter(({ url }) => url.includes('limit=500')).length).toBeGreaterThanOrEqual(2);
});

test('a page that the role may not read is shown, and names the role', async () => {
  serve();
  const { user, address } = open('/admin');
  await waitFor(() => expect(address()).toBe('/ui/admin/tokens'));
  const system = screen.getByRole('button', { name: 'System' });
  expect(system.getAttribute('aria-disabled')).toBe('true');
  const reason = document.getElementById(system.getAttribute('aria-describedby') ?? '');
  expect(reason?.textContent).toBe('Needs the role admin.');
  await user.click(system);
  expect(address()).toBe('/ui/admin/tokens');
});

test('the audit log is verified to its end', async () => {
  serve();
  const { user } = open('/admin/audit');
  await user.click(await screen.findByRole('button', { name: 'Verify the chain' }));
  const { links } = example<{ links: number }>('GET /api/v1/audit/verify');
  await screen.findByText(`All ${links} entries are valid.`);
});
