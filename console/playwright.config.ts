import { defineConfig, devices } from '@playwright/test';

import { environment } from './e2e/environment';

const { url, chromium } = environment;
const desktop = { ...devices['Desktop Chrome'], viewport: { width: 1280, height: 800 } };
const FAULTS = /faults\.spec\.ts/;
const PICTURES = /pictures\.spec\.ts/;
const LARGE = /large\.spec\.ts/;
const APART = [FAULTS, PICTURES, LARGE];

export default defineConfig({
  testDir: 'e2e',
  // All tests share one broker, and faults stop it.
  workers: 1,
  fullyParallel: false,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  forbidOnly: process.env['CI'] !== undefined,
  reporter: [['list']],
  outputDir: 'e2e/results',
  use: {
    ...desktop,
    baseURL: url,
    // The broker of a test has a certificate of its own authority.
    ignoreHTTPSErrors: true,
    // Snapshots of the document take as long as the test itself on a machine with two cores.
    trace: { mode: 'retain-on-failure', snapshots: false, screenshots: false },
    screenshot: 'only-on-failure',
    launchOptions: {
      ...(chromium !== undefined && { executablePath: chromium }),
      // The sandbox of Chromium does not work for root.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    },
  },
  projects: [
    { name: 'light', use: { colorScheme: 'light' }, testIgnore: APART },
    { name: 'dark', use: { colorScheme: 'dark' }, testIgnore: APART },
    { name: 'pictures', use: { colorScheme: 'light' }, testMatch: PICTURES },
    { name: 'large', use: { colorScheme: 'light' }, testMatch: LARGE },
    { name: 'faults', use: { colorScheme: 'light' }, testMatch: FAULTS },
  ],
});
