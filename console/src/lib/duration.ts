// Durations as people type them, as on the command line: `90s`, `30m`, `1h30m`, `7d`.

const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };

/** Returns the seconds, or nothing if the text is not a duration. */
export function seconds(text: string): number | undefined {
  const parts = text.replaceAll(/\s/g, '');
  if (!/^(\d+[smhdw])+$/.test(parts)) return undefined;
  const all = [...parts.matchAll(/(\d+)([smhdw])/g)];
  return all.reduce((sum, [, count, unit]) => sum + Number(count) * (SECONDS[unit as string] as number), 0);
}

/** Returns `2h`, `1d`: the largest two units that are not zero. */
export function left(total: number): string {
  const parts: string[] = [];
  let rest = total;
  for (const unit of ['d', 'h', 'm', 's']) {
    const size = SECONDS[unit] as number;
    if (rest >= size && parts.length < 2) parts.push(`${Math.trunc(rest / size)}${unit}`);
    rest %= size;
  }
  return parts.join('') || '0s';
}
