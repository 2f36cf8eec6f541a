// Pictures of the console for the documentation, light and dark.

import { join } from 'node:path';

import { environment } from './environment';
import { expect, loaded, open, test } from './console';

const { stack, agent, rollout, pictures } = environment;

test.use({ role: 'admin' });
test.skip(pictures === undefined, 'BROKKR_CONSOLE_PICTURES is not set');

const SCREENS = [
  ['fleet', '/?by=region'],
  ['stack', `/stacks/${stack}`],
  ['diff', `/stacks/${stack}?tab=diff`],
  ['why', `/stacks/${stack}/agents/${agent}`],
  ['agent', `/agents/${agent}`],
  ['rollout', rollout === undefined ? '/rollouts' : `/rollouts/${rollout}`],
  ['activity', `/activity?stack=${stack}`],
  ['join', '/admin/join'],
] as const;

for (const colorScheme of ['light', 'dark'] as const) {
  for (const [name, path] of SCREENS) {
    test(`${name}, ${colorScheme}`, async ({ page }) => {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await open(page, path);
      await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
      await loaded(page);
      await page.waitForLoadState('networkidle', { timeout: 2_000 }).catch(() => undefined);
      await page.screenshot({ path: join(pictures as string, `${name}-${colorScheme}.png`) });
    });
  }
}
