import { environment } from './environment';
import { expect, expectAccessible, expectZoomable, open, shown, signIn, test, token, watch, words } from './console';

const { stack } = environment;

test('signing in returns to the page that was asked for, with the keyboard only', async ({ page }) => {
  const secret = token('viewer');
  await open(page, `/stacks/${stack}?tab=versions`);
  await shown(page, words.login.title);
  await expectAccessible(page);
  await expectZoomable(page);
  await page.keyboard.press('Tab');
  await expect(page.getByLabel(words.login.token)).toBeFocused();
  await page.keyboard.type(secret);
  await page.keyboard.press('Enter');
  await shown(page, stack);
  expect(new URL(page.url()).search).toBe('?tab=versions');
  const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  expect(stored, 'the token is kept nowhere').not.toContain(secret);
});

test('a wrong token is refused, without a word about whether it exists', async ({ page }) => {
  await open(page, '/login');
  await page.getByLabel(words.login.token).fill('brk_0000000000000000000000000000000000000000000000');
  await page.getByRole('button', { name: words.login.submit }).click();
  await expect(page.getByRole('alert')).toContainText(words.login.refused);
  await expectAccessible(page);
});

test('an address of another site is not followed after signing in', async ({ page }) => {
  await signIn(page, token('viewer'), '/login?to=%2F%2Fexample.com%2F');
  await shown(page, words.fleet.title);
  expect(new URL(page.url()).pathname).toBe('/ui/');
});

test('signing in and out in one tab does the same in the other', async ({ page, context, problems }) => {
  const secret = token('viewer');
  const other = await context.newPage();
  await watch(other, problems);
  await open(other, '/stacks');
  await shown(other, words.login.title);
  await signIn(page, secret);
  await shown(other, words.stacks.title);
  await other.locator('summary').click();
  await other.getByRole('button', { name: words.account.signOut }).click();
  await shown(other, words.login.title);
  await shown(page, words.login.title);
  await page.goBack();
  await shown(page, words.login.title);
});
