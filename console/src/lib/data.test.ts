import { expect, test } from 'vitest';

import type { Page, SequenceHops, StackStatus } from '../api/types';
import { example } from '../test/broker';
import { conditions } from './conditions';
import { replaceRow, rowsOf, totalOf } from './pages';
import { oneOf, text, whole } from './search';
import { waterfall } from './waterfall';

test('only wrong conditions are shown, and no consequences', () => {
  const condition = (kind: string, status: 'True' | 'False' | 'Unknown') => ({ kind, status, sequence_id: 1, since: '' });
  const wrong = (...all: [string, 'True' | 'False' | 'Unknown'][]) =>
    conditions({ conditions: all.map(([kind, status]) => condition(kind, status)) });
  expect(wrong(['Accepted', 'True'], ['Applied', 'True'], ['Ready', 'True'], ['Contested', 'False'])).toEqual([]);
  expect(wrong(['Applied', 'False'], ['Ready', 'False']), 'Ready follows from Applied').toEqual(['not Applied']);
  expect(wrong(['Ready', 'Unknown'], ['Contested', 'True'])).toEqual(['not yet Ready', 'Contested']);
  expect(conditions({})).toEqual([]);
});

test('a changed row is replaced in place', () => {
  const page = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status');
  const [row] = page.items as [StackStatus];
  const others = [{ ...row, agent_id: 'a' }, row, { ...row, agent_id: 'z' }];
  const data = { pages: [{ ...page, items: others }], pageParams: [undefined] };
  const changed = replaceRow(data, { ...row, state: 'healthy' }, (known) => known.agent_id === row.agent_id);
  expect(rowsOf(changed).map(({ agent_id: id, state }) => [id, state])).toEqual([
    ['a', 'failed'],
    [row.agent_id, 'healthy'],
    ['z', 'failed'],
  ]);
});

test('the total is what the broker counted, or the number of rows once all are loaded', () => {
  const pages = (last: Page<number>) => ({ pages: [{ items: [1, 2], next: 'x' }, last], pageParams: [] });
  expect(totalOf({ pages: [{ items: [1], next: 'x', total: 9 }], pageParams: [] })).toBe(9);
  expect(totalOf(pages({ items: [3], next: null }))).toBe(3);
  expect(totalOf(pages({ items: [3], next: 'y' }))).toBeUndefined();
});

test('a waterfall shows when each step happened', () => {
  const versions = example<Page<SequenceHops>>('GET /api/v1/stacks/{stack}/agents/{agent}/hops').items;
  const { steps, total } = waterfall((versions[1] as SequenceHops).hops);
  expect(total).toBe(5_000);
  expect(steps.map(({ hop, start, end }) => `${hop} ${start}-${end}`)).toEqual([
    'published 0-0',
    'targeted 0-0',
    'released 0-0',
    'fetched 0-0.2',
    'verified 0.2-0.4',
    'applied 0.4-0.6',
    'healthy 0.6-1',
  ]);
});

test('search parameters that make no sense are ignored', () => {
  expect([text('a'), text(42), text(''), text({})]).toEqual(['a', '42', undefined, undefined]);
  expect([whole(7), whole('7'), whole(-1), whole('x')]).toEqual([7, 7, undefined, undefined]);
  expect([oneOf('a', ['a', 'b']), oneOf('c', ['a', 'b'])]).toEqual(['a', undefined]);
});
