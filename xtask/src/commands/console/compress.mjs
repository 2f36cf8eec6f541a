// Compresses the files of the console for the broker, which does not compress them itself: once, as well as possible.
// Run by `cargo xtask console` in the folder of the console.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';

// Below this size, the headers of a response are larger than what compression saves.
const SMALLEST = 512;
const COMPRESSIBLE = /\.(html|js|css|svg|json|txt|webmanifest)$/;

let count = 0;
const sum = { plain: 0, compressed: 0 };

for (const entry of readdirSync('dist', { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !COMPRESSIBLE.test(entry.name)) continue;
  const path = join(entry.parentPath, entry.name);
  const plain = readFileSync(path);
  const parameters = {
    [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
    [constants.BROTLI_PARAM_SIZE_HINT]: plain.length,
  };
  const compressed = brotliCompressSync(plain, { params: parameters });
  // A variant of another content must not remain.
  rmSync(`${path}.br`, { force: true });
  if (plain.length >= SMALLEST && compressed.length < plain.length) writeFileSync(`${path}.br`, compressed);
  sum.compressed += Math.min(plain.length, compressed.length);
  sum.plain += plain.length;
  count += 1;
}

const kilobytes = (bytes) => `${(bytes / 1000).toFixed(0)} kB`;
console.log(`${count} files, ${kilobytes(sum.plain)}; compressed ${kilobytes(sum.compressed)}`);
