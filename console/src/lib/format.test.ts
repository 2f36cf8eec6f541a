import { expect, test } from 'vitest';

import { age, bytes, duration, explained, labels, number, objectName, orDash } from './format';

test('ages have one unit, as in the command line', () => {
  const now = Date.parse('2026-03-01T12:00:00Z');
  const ago = (seconds: number) => age(new Date(now - seconds * 1000).toISOString(), now);
  expect([0, 59, 60, 3599, 3600, 90_000, 200_000].map(ago)).toEqual(['0s', '59s', '1m', '59m', '1h', '25h', '2d']);
  expect(ago(-5), 'a clock that is ahead').toBe('0s');
});

test('durations get coarser as they get longer', () => {
  const texts = [0, 99, 100, 180, 41_000, 180_000, 9_000_000].map(duration);
  expect(texts).toEqual(['0 ms', '99 ms', '0.1 s', '0.2 s', '41 s', '3 min', '3 h']);
});

test('large numbers have separators, and sizes a unit', () => {
  expect(number(1_234_567)).toBe('1,234,567');
  expect([0, 900, 1024, 5 * 1024 ** 2, 2 ** 40].map(bytes)).toEqual(['0 B', '900 B', '1 KiB', '5 MiB', '1 TiB']);
});

test('what is missing is a dash', () => {
  expect([orDash(undefined), orDash(null), orDash(''), orDash(0)]).toEqual(['-', '-', '-', '0']);
});

test('objects, labels and reasons are written as in the command line', () => {
  expect(objectName({ kind: 'Deployment', namespace: 'shop', name: 'web' })).toBe('Deployment shop/web');
  expect(objectName({ kind: 'Namespace', name: 'shop' })).toBe('Namespace shop');
  expect(objectName({ kind: 'Job', namespace: 'shop' })).toBe('Job in namespace shop');
  expect(labels({ env: 'prod', region: 'eu' })).toBe('env=prod,region=eu');
  expect([explained('A', 'b'), explained('A', ''), explained('', 'b')]).toEqual(['A: b', 'A', 'b']);
});
