// The console as a signed-in person. Every test fails on a report of the content security policy, and on an error of a
// script.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { test as base, expect, type Locator, type Page } from '@playwright/test';

import { words } from '../src/words';
import { environment, type Role } from './environment';

export { expect, words };

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const STANDARDS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

interface Options {
  /** The role of the person; absent: not signed in. */
  role: Role | undefined;
}

/** Collects reports of the content security policy and uncaught errors of a page. */
export async function watch(page: Page, problems: string[]): Promise<void> {
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (/content security policy|trusted ?type|CSP report/i.test(message.text())) problems.push(message.text());
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sourceFile }) => {
      // oxlint-disable-next-line no-console
      console.error(`CSP report: ${violatedDirective} ${blockedURI} ${sourceFile}`);
    });
  });
}

export const test = base.extend<Options & { problems: string[] }>({
  role: [undefined, { option: true }],
  // oxlint-disable-next-line no-empty-pattern
  problems: async ({}, use) => {
    const problems: string[] = [];
    await use(problems);
    expect(problems, 'reports of the content security policy, and errors of scripts').toEqual([]);
  },
  page: async ({ page, role, problems }, use) => {
    await watch(page, problems);
    if (role !== undefined) await signIn(page, token(role));
    await use(page);
  },
});

export function token(role: Role): string {
  const found = environment.tokens[role];
  base.skip(found === undefined, `BROKKR_CONSOLE_TOKEN_${role.toUpperCase()} is not set`);
  return found as string;
}

export async function signIn(page: Page, secret: string, path = '/login'): Promise<void> {
  await open(page, path);
  await page.getByLabel(words.login.token).fill(secret);
  await page.getByRole('button', { name: words.login.submit }).click();
  await expect(page.getByRole('navigation', { name: words.nav.label })).toBeVisible();
}

/** Opens a page of the console by its address. */
export async function open(page: Page, path: string): Promise<void> {
  await page.goto(`/ui${path}`);
}

/** Marks the tests of a role that CI leaves to the night: it runs each screen as one role. */
export function inCi(role: Role, ...roles: Role[]): { tag?: string } {
  return roles.includes(role) ? {} : { tag: '@nightly' };
}

/** Waits until the page shows its title, and nothing is loading. What the page is about comes after that: expect it, too. */
export async function shown(page: Page, title: string | RegExp): Promise<void> {
  await expect(page.getByRole('heading', { level: 1, name: title })).toBeVisible();
  await loaded(page);
}

/** Waits until nothing is loading. */
export async function loaded(page: Page): Promise<void> {
  await expect(page.locator('[aria-busy="true"]')).toHaveCount(0);
  await expect(page.getByText(words.loading, { exact: true })).toHaveCount(0);
}

/** Expects no finding of axe at WCAG 2.2 AA, in the theme of the project. */
export async function expectAccessible(page: Page): Promise<void> {
  await loaded(page);
  // Animations would change colours meanwhile.
  await page.emulateMedia({ reducedMotion: 'reduce' });
  const session = await page.context().newCDPSession(page);
  // The content security policy of the page allows no script tags and no `eval`, not even for tests.
  const run = `${axe};axe.run(document, { runOnly: ${JSON.stringify(STANDARDS)} }).then((found) => JSON.stringify(
    found.violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html.slice(0, 200))])))`;
  const { result } = await session.send('Runtime.evaluate', { expression: run, awaitPromise: true });
  await session.detach();
  expect(JSON.parse(String(result.value)), 'findings of axe').toEqual([]);
}

/** Shows the page at 200 %, and expects that nothing has to be scrolled sideways but tables. */
export async function expectZoomable(page: Page): Promise<void> {
  const before = page.viewportSize() ?? { width: 1280, height: 800 };
  // A page at 200 % has half the size, in its own pixels.
  await page.setViewportSize({ width: before.width / 2, height: before.height / 2 });
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  const tooWide = await page.evaluate(() => {
    const parts = [document.documentElement, document.querySelector('main')];
    return parts.filter((part) => part !== null && part.scrollWidth > part.clientWidth + 1).map((part) => part?.tagName);
  });
  expect(tooWide, 'parts that are wider than the window').toEqual([]);
  await page.setViewportSize(before);
}

/** Expects the focus in a dialog: until then, keys such as Escape are not meant for it. */
export async function expectFocusIn(dialog: Locator): Promise<void> {
  await expect(dialog.and(dialog.page().locator(':focus-within'))).toBeVisible();
}

/** Moves the focus to an element with Tab only. */
export async function tabTo(page: Page, target: Locator): Promise<void> {
  for (let presses = 0; presses < 120; presses += 1) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error('the element is not reached with Tab');
}

/** Returns why a control cannot be used. */
export async function reasonOf(page: Page, control: Locator): Promise<string | null> {
  await expect(control).toHaveAttribute('aria-disabled', 'true');
  const id = await control.getAttribute('aria-describedby');
  return id === null ? null : page.locator(`[id="${id}"]`).textContent();
}

/** All rows of lists. */
export function allRows(page: Page): Locator {
  return page.locator('[role="row"][data-row]');
}

/** The first row of a list. */
export function firstRow(page: Page): Locator {
  return page.locator('[role="row"][data-row="0"]').first();
}
