// The row or column that is chosen. It is remembered by its key: others may be inserted before it at any time.

export interface Chosen {
  /** Absent while nothing was chosen. */
  key: string | undefined;
  /** Where it was, for the time when it is gone. */
  index: number;
}

export const FIRST: Chosen = { key: undefined, index: 0 };

/** Returns where the chosen item is now; what has its place, if it is gone. */
export function indexOfChosen(keys: readonly string[], { key, index }: Chosen): number {
  const found = key === undefined ? -1 : keys.indexOf(key);
  return Math.max(0, Math.min(found === -1 ? index : found, keys.length - 1));
}
