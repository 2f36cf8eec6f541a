// Numbers, times and labels as text.

const LOCALE = 'en';
const numbers = new Intl.NumberFormat(LOCALE);
const dates = new Intl.DateTimeFormat(LOCALE, { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });
const times = new Intl.DateTimeFormat(LOCALE, { timeStyle: 'medium', hourCycle: 'h23' });
const clock = new Intl.DateTimeFormat(LOCALE, { timeStyle: 'short', hourCycle: 'h23' });

export function number(value: number): string {
  return numbers.format(value);
}

/** Returns a size with a binary unit, such as `12 MiB`. */
export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const unit = value < 1 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  return `${numbers.format(Math.round(value / 1024 ** unit))} ${units[unit]}`;
}

export function dateTime(at: string): string {
  return dates.format(new Date(at));
}

/** Returns a time without its day if that is the day of another one. */
export function timeBeside(at: string, other: string): string {
  const isSameDay = new Date(at).toDateString() === new Date(other).toDateString();
  return isSameDay ? times.format(new Date(at)) : dateTime(at);
}

export function clockTime(at: number): string {
  return clock.format(at);
}

/** Returns an age in one unit, as the command line does: `12s`, `3m`, `5h`, `2d`. */
export function age(then: string, now: number): string {
  const seconds = Math.max(Math.trunc((now - Date.parse(then)) / 1000), 0);
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.trunc(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.trunc(seconds / 3600)}h`;
  return `${Math.trunc(seconds / 86_400)}d`;
}

/** Returns the time between two steps: `40 ms`, `0.2 s`, `41 s`, `3 min`. */
export function duration(ms: number): string {
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

export function labels(all: Record<string, string>): string {
  return Object.entries(all)
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
}

/** Returns the first digits of a checksum or id. */
export function shortId(id: string): string {
  return id.slice(0, 12);
}

export function orDash(value: string | number | null | undefined): string {
  return value == null || value === '' ? '-' : String(value);
}

/** `Deployment shop/web`, as the command line writes it. */
export function objectName(object: { kind: string; namespace?: string | null; name?: string }): string {
  const { kind, namespace, name } = object;
  if (namespace != null) return name ? `${kind} ${namespace}/${name}` : `${kind} in namespace ${namespace}`;
  return name ? `${kind} ${name}` : kind;
}

/** Returns `ImagePullBackOff: cannot pull …`, or the part that is given. */
export function explained(reason: string | undefined, message: string | undefined): string {
  return [reason, message].filter(Boolean).join(': ');
}
