import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

/** The broker of the development fleet. */
const broker = process.env['BROKKR_SERVER'] ?? 'https://127.0.0.1:8780';

export default defineConfig({
  base: '/ui/',
  plugins: [react()],
  build: {
    target: 'es2023',
    // Styles and pictures are files, because the content security policy allows nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    manifest: true,
    rolldownOptions: {
      output: {
        // What every page needs is one file, so that the first screen takes few requests.
        codeSplitting: {
          groups: [
            {
              name: 'vendor',
              test: /node_modules\/((react|react-dom|scheduler|openapi-fetch)\/|@tanstack\/.*(router|query|history|store))/,
            },
            { name: 'base', test: /src\/(words|lib|api|ui)\/(?!Grid|List|Filters|Act|Field|Reach)/, minShareCount: 4 },
          ],
        },
      },
    },
  },
  server: {
    // The certificate of the development fleet is signed by its own authority, given by NODE_EXTRA_CA_CERTS.
    proxy: { '/api': { target: broker }, '/auth': { target: broker } },
  },
  test: {
    environment: 'happy-dom',
    environmentOptions: { happyDOM: { url: 'https://brokkr.example/ui/' } },
    setupFiles: ['src/test/setup.ts'],
    include: ['src/**/*.test.{ts,tsx}'],
    testTimeout: 30_000,
    css: { modules: { classNameStrategy: 'non-scoped' } },
  },
});
