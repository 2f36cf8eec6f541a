import { environment } from './environment';
import { expect, expectAccessible, expectZoomable, firstRow, open, shown, test, words } from './console';

const { stack, state } = environment;
const say = words.activity;

test.use({ role: 'viewer' });

test('the activity is folded, filtered by its address, and opens the events of a line', async ({ page }) => {
  await open(page, `/activity?stack=${stack}`);
  await shown(page, say.title);
  await expect(page.getByRole('grid', { name: say.title })).toContainText(stack);
  await expectAccessible(page);
  await expectZoomable(page);
  await page.keyboard.press('/');
  await expect(page.getByLabel(words.events.filterStack)).toBeFocused();
  await page.getByLabel(words.events.filterEvent).selectOption(state);
  await expect(page).toHaveURL(new RegExp(`transition=${state}`));
  await expect(firstRow(page)).toBeVisible();
  await firstRow(page).focus();
  await page.keyboard.press('Enter');
  await shown(page, words.events.title);
  await expect(page).toHaveURL(/version=\d+/);
  await expectAccessible(page);
  await page.goBack();
  await shown(page, say.title);
});

test('the file has a line for each event', async ({ page }) => {
  await open(page, `/activity?stack=${stack}`);
  await shown(page, say.title);
  const file = page.waitForEvent('download');
  await page.getByRole('button', { name: say.csv }).click();
  const download = await file;
  expect(download.suggestedFilename()).toBe(say.csvName);
  const stream = await download.createReadStream();
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(part as Buffer);
  const [head, first] = Buffer.concat(parts).toString('utf8').split('\r\n');
  expect(head).toBe(say.head.join(','));
  expect(first).toContain(stack);
});

test('the palette finds the stack, and offers it again when it is empty', async ({ page }) => {
  await open(page, '/');
  await shown(page, words.fleet.title);
  await page.keyboard.press('ControlOrMeta+k');
  const results = page.getByRole('listbox', { name: words.palette.results });
  await expect(page.getByRole('combobox', { name: words.palette.placeholder })).toBeFocused();
  await page.keyboard.type(stack);
  const option = results.getByRole('option').filter({ hasText: stack }).filter({ hasText: words.palette.kinds.stack });
  await expect(option.filter({ hasNotText: words.stacks.title }).first()).toBeVisible();
  await expectAccessible(page);
  const names = await results.getByRole('option').locator('span:first-child').allTextContents();
  const at = names.indexOf(stack);
  expect(at, 'the stack is found').toBeGreaterThanOrEqual(0);
  for (let step = 0; step < at; step += 1) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await shown(page, stack);
  await expect(page.getByRole('group', { name: words.acts.label })).toBeVisible();
  await page.keyboard.press('ControlOrMeta+k');
  await expect(results.getByRole('option').first()).toContainText(stack);
});
