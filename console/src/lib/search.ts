// Reads search parameters. The router parses them as JSON where it can, so a name such as `42` arrives as a number.

export function text(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

export function whole(value: unknown): number | undefined {
  const read = typeof value === 'string' ? Number(value) : value;
  return typeof read === 'number' && Number.isSafeInteger(read) && read > 0 ? read : undefined;
}

export function oneOf<T extends string>(value: unknown, allowed: readonly T[]): T | undefined {
  return allowed.find((one) => one === value);
}
