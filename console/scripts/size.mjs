// Fails if the console is larger than its budgets. Browsers load files that are compressed with brotli.

import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { constants, brotliCompressSync } from 'node:zlib';

const FIRST_SCREEN_KB = 170;
const ALL_KB = 450;
/** What the console adds to the broker, which contains each file as it is and compressed. */
const IN_BROKER_KB = 1000;
/** What the first screen needs: the entry, and the page that it opens. */
const FIRST_SCREEN = ['index.html', 'src/pages/Fleet.tsx'];

const dist = new URL('../dist/', import.meta.url).pathname;
const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8'));

/** Adds the files of a module, and of all modules that it loads at once. */
function collect(name, files) {
  const { file, css = [], imports = [] } = manifest[name];
  if (files.has(file)) return files;
  for (const one of [file, ...css]) files.add(one);
  for (const one of imports) collect(one, files);
  return files;
}

function compressed(file) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  return brotliCompressSync(readFileSync(join(dist, file)), { params }).length;
}

const both = (file) => statSync(join(dist, file)).size + compressed(file);

const first = new Set(['index.html']);
for (const name of FIRST_SCREEN) collect(name, first);
const all = new Set(['index.html', 'icon.svg']);
for (const name of Object.keys(manifest)) collect(name, all);

let isWithin = true;
for (const [name, files, sizeOf, budget] of [
  ['first screen', first, compressed, FIRST_SCREEN_KB],
  ['everything', all, compressed, ALL_KB],
  ['in the broker', all, both, IN_BROKER_KB],
]) {
  const size = [...files].reduce((sum, file) => sum + sizeOf(file), 0) / 1000;
  isWithin &&= size <= budget;
  process.stdout.write(`${name}: ${size.toFixed(1)} KB of ${budget} KB, ${files.size} files\n`);
}
process.exitCode = isWithin ? 0 : 1;
