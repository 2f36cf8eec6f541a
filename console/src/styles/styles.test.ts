import { globSync, readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

/** React Aria moves the focus into a dialog after all transitions of the page, and may wait for one that was cancelled. */
test('no style has a transition, including with reduced motion', () => {
  const files = globSync('src/**/*.css');
  const transitions = files.flatMap((file) =>
    (readFileSync(file, 'utf8').match(/\btransition[\w-]*:[^;]+/g) ?? []).map((found) => `${file} ${found}`),
  );
  expect(files.length).toBeGreaterThan(20);
  expect(transitions).toEqual(['src/styles/global.css transition: none !important']);
});
